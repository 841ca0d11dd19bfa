// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/distributed/detail/network.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <thread>

namespace tensorpack::detail {

namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// What a name stands for; `error` says why nothing.
Addresses resolve(const std::string& name, int port, int type, std::string* error) {
  addrinfo hints{};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int status = getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (status != 0) {
    *error = "the name '" + name + "' is not known: " + gai_strerror(status);
    found = nullptr;
  }
  return {found, &freeaddrinfo};
}

/// Zero, or the errno of a try to connect within `at_most`.
int try_connect(const addrinfo& address, std::chrono::milliseconds at_most) {
  const Socket socket(address.ai_family, SOCK_STREAM | SOCK_NONBLOCK);
  if (socket.fd() < 0) return errno;
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd waiting{.fd = socket.fd(), .events = POLLOUT, .revents = 0};
  if (poll(&waiting, 1, static_cast<int>(at_most.count())) <= 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

}  // namespace

std::string wait_for_port(const std::string& address, int port, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kBetweenTries{50};
  std::string error;
  for (;;) {
    const Addresses found = resolve(address, port, SOCK_STREAM, &error);
    for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      const int status = try_connect(*each, std::max(left, std::chrono::milliseconds(1)));
      if (status == 0) return "";
      error = std::strerror(status);
    }
    if (Clock::now() >= deadline) return error.empty() ? "it has no address" : error;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

std::string local_address_towards(const std::string& address, int port) {
  std::string error;
  const Addresses found = resolve(address, port, SOCK_DGRAM, &error);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    // Connecting a datagram socket sends nothing: it only asks for the route.
    const Socket socket(each->ai_family, SOCK_DGRAM);
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    char text[NI_MAXHOST];
    auto* own_address = reinterpret_cast<sockaddr*>(&own);
    if (socket.fd() >= 0 && connect(socket.fd(), each->ai_addr, each->ai_addrlen) == 0 &&
        getsockname(socket.fd(), own_address, &size) == 0 &&
        getnameinfo(own_address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) == 0) {
      return text;
    }
  }
  return "";
}

bool is_loopback(const std::string& address) {
  return address == "::1" || address.rfind("127.", 0) == 0;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace tensorpack::detail
