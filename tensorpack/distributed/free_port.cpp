// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/free_port.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensorpack/utils/error.h"

namespace tensorpack {

int free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound = fd >= 0 && bind(fd, plain, size) == 0 && getsockname(fd, plain, &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  TP_CHECK(is_bound, "free_port", "the system gives no port: {}.", std::strerror(error));
  return ntohs(address.sin_port);
}

}  // namespace tensorpack
