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
#include <optional>
#include <thread>
#include <utility>

#include "tensorpack/utils/string.h"

namespace tensorpack::detail {

namespace {

using Clock = std::chrono::steady_clock;

class Socket {
 public:
  Socket(int family, int type) : fd_(socket(family, type | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
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

/// Whether something happens before the deadline; looks once in any case. Signals do not end it.
bool wait_for(const Socket& socket, short events, Clock::time_point deadline) {
  pollfd waiting{.fd = socket.fd(), .events = events, .revents = 0};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const int count = poll(&waiting, 1, static_cast<int>(std::max<int64_t>(left.count(), 1)));
    if (count >= 0 || errno != EINTR) return count > 0;
  }
}

/// Zero, or the errno of a try to connect.
int try_connect(const Socket& socket, const addrinfo& address, Clock::time_point deadline) {
  if (socket.fd() < 0) return errno;
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(socket, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

/// A connection; `error` says why there is none.
std::optional<Socket> connect_to(const std::string& address, int port, Clock::time_point deadline,
                                 std::string* error) {
  const Addresses found = resolve(address, port, SOCK_STREAM, error);
  for (const addrinfo* each = found.get(); each != nullptr; each = each->ai_next) {
    Socket socket(each->ai_family, SOCK_STREAM | SOCK_NONBLOCK);
    const int status = try_connect(socket, *each, deadline);
    if (status == 0) return socket;
    *error = std::strerror(status);
  }
  return std::nullopt;
}

}  // namespace

std::string wait_for_port(const std::string& address, int port, Clock::time_point deadline) {
  constexpr std::chrono::milliseconds kBetweenTries{50};
  std::string error;
  for (;;) {
    if (connect_to(address, port, deadline, &error)) return "";
    if (Clock::now() >= deadline) return error.empty() ? "it has no address" : error;
    std::this_thread::sleep_for(kBetweenTries);
  }
}

std::string check_answer(const std::string& address, int port, const std::string& question,
                         const std::string& expected, Clock::time_point deadline) {
  std::string error;
  const auto socket = connect_to(address, port, deadline, &error);
  if (!socket) return error;
  if (send(socket->fd(), question.data(), question.size(), MSG_NOSIGNAL) < 0) {
    return std::strerror(errno);
  }
  constexpr size_t kMoreThanExpected = 16;
  std::string answer;
  while (answer.size() < expected.size()) {
    if (!wait_for(*socket, POLLIN, deadline)) return "it listens, but says nothing";
    char bytes[kMoreThanExpected];
    const ssize_t count = recv(socket->fd(), bytes, sizeof(bytes), 0);
    if (count < 0) return std::strerror(errno);
    if (count == 0) return "it closes the connection";
    answer.append(bytes, static_cast<size_t>(count));
  }
  return answer == expected ? "" : "it says \"" + printable(answer) + "\"";
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
