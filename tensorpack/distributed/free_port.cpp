// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Below the ports that systems give to outgoing connections (from 32768 on Linux): one of those
// could be taken by a connection before anybody listens on it, even by the one that looks for the
// listener, which then talks to itself.
constexpr int kFirst = 10000;
constexpr int kLast = 32000;
constexpr int kTries = 1000;

bool is_free(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (fd < 0) return false;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(static_cast<uint16_t>(port));
  const bool is_bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return is_bound;
}

}  // namespace

int free_port() {
  std::random_device random;
  std::uniform_int_distribution<int> ports(kFirst, kLast);
  for (int i = 0; i < kTries; ++i) {
    if (const int port = ports(random); is_free(port)) return port;
  }
  throw make_error("free_port", "none of {} ports between {} and {} is free on this host.", kTries,
                   kFirst, kLast);
}

}  // namespace tensorpack
