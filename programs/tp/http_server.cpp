// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr size_t kMaxRequest = 16 << 10;
constexpr size_t kMaxConnections = 64;
constexpr std::chrono::seconds kPatience(15);

const char* reason_of(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 421:
      return "Misdirected Request";
    case 431:
      return "Request Header Fields Too Large";
    default:
      return "Bad Request";
  }
}

std::string to_text(const HttpResponse& response) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\nConnection: "
      "close\r\n\r\n{}",
      response.status, reason_of(response.status), response.type, response.body.size(),
      response.body);
}

// The value of the Host header; empty when there is none.
std::string host_of(const std::string& request) {
  std::istringstream lines(request);
  for (std::string line; std::getline(lines, line);) {
    std::string name = line.substr(0, line.find(':'));
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    if (name != "host") continue;
    const size_t begin = line.find_first_not_of(" \t", 5);
    const size_t end = line.find_last_not_of(" \t\r");
    return begin == std::string::npos ? "" : line.substr(begin, end + 1 - begin);
  }
  return "";
}

}  // namespace

HttpServer::HttpServer(const std::string& address, int port) : address_(address) {
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  TP_CHECK(inet_pton(AF_INET, address.c_str(), &place.sin_addr) == 1, "tp watch",
           "'{}' is no IPv4 address. Write 127.0.0.1 for this machine alone.", address);
  fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int yes = 1;
  setsockopt(fd_, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  socklen_t size = sizeof(place);
  auto* where = reinterpret_cast<sockaddr*>(&place);
  const bool listens = bind(fd_, where, size) == 0 && listen(fd_, SOMAXCONN) == 0 &&
                       getsockname(fd_, where, &size) == 0;
  if (!listens) {
    const std::string reason = std::strerror(errno);
    close(fd_);
    throw make_error("tp watch", "cannot listen at {}:{}: {}. Choose another port: --port 0.",
                     address, port, reason);
  }
  port_ = ntohs(place.sin_port);
}

HttpServer::~HttpServer() {
  for (const Connection& connection : connections_) close(connection.fd);
  close(fd_);
}

void HttpServer::serve(const Handler& handler) {
  while (true) {
    std::vector<pollfd> events{{.fd = fd_, .events = POLLIN, .revents = 0}};
    for (const Connection& connection : connections_) {
      const bool answers = !connection.response.empty();
      events.push_back({.fd = connection.fd,
                        .events = static_cast<short>(answers ? POLLOUT : POLLIN),
                        .revents = 0});
    }
    poll(events.data(), events.size(), /*timeout=*/1000);
    std::vector<Connection> kept;
    for (size_t i = 0; i < connections_.size(); ++i) {
      Connection& connection = connections_[i];
      bool is_needed = Clock::now() - connection.since < kPatience;
      if (is_needed && events[i + 1].revents != 0) {
        is_needed =
            connection.response.empty() ? receive(connection, handler) : send_some(connection);
      }
      if (is_needed) {
        kept.push_back(std::move(connection));
      } else {
        close(connection.fd);
      }
    }
    connections_ = std::move(kept);
    if (events[0].revents != 0) accept_all();
  }
}

// Browsers open connections ahead and may leave them: with too many, the oldest goes.
void HttpServer::accept_all() {
  for (int fd = 0; (fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;) {
    if (connections_.size() == kMaxConnections) {
      close(connections_.front().fd);
      connections_.erase(connections_.begin());
    }
    connections_.push_back({.fd = fd});
  }
}

bool HttpServer::receive(Connection& connection, const Handler& handler) const {
  char buffer[4096];
  const ssize_t count = recv(connection.fd, buffer, sizeof(buffer), 0);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  connection.request.append(buffer, static_cast<size_t>(count));
  if (connection.request.find("\r\n\r\n") != std::string::npos) {
    connection.response = to_text(answer(connection.request, handler));
  } else if (connection.request.size() > kMaxRequest) {
    connection.response = to_text({.status = 431, .body = "The request is too long.\n"});
  }
  return true;
}

bool HttpServer::send_some(Connection& connection) {
  const std::string& text = connection.response;
  const ssize_t count = send(connection.fd, text.data() + connection.sent,
                             text.size() - connection.sent, MSG_NOSIGNAL);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  connection.sent += static_cast<size_t>(count);
  connection.since = Clock::now();
  return connection.sent < text.size();
}

HttpResponse HttpServer::answer(const std::string& request, const Handler& handler) const {
  std::istringstream line(request.substr(0, request.find("\r\n")));
  std::string method, target, version, more;
  line >> method >> target >> version >> more;
  if (!version.starts_with("HTTP/1.") || !target.starts_with('/') || !more.empty()) {
    return {.status = 400, .body = "This is no request.\n"};
  }
  if (method != "GET") return {.status = 405, .body = "Only GET is answered.\n"};
  if (!is_meant_for_us(host_of(request))) {
    return {.status = 421, .body = "This server is not the one you asked for.\n"};
  }
  return handler(target.substr(0, target.find('?')));
}

// Another site may have its name lead here, to read as that site what is meant for the user alone.
bool HttpServer::is_meant_for_us(const std::string& host) const {
  const std::string name = host.substr(0, host.rfind(':'));
  const bool is_local = name == "localhost" || name == "127.0.0.1" || name == address_;
  return is_local || address_ == "0.0.0.0";
}

}  // namespace tensorpack
