// SPDX-License-Identifier: Apache-2.0
// The smallest server that a browser on the same machine can ask: GET alone, one answer for each
// connection, everything bounded.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace tensorpack {

struct HttpResponse {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body = {};
};

class HttpServer {
 public:
  /// Given the path of a request, without what follows a '?'.
  using Handler = std::function<HttpResponse(const std::string& path)>;

  /// Listens at an IPv4 address; port 0 stands for any that is free. Throws an Error when it
  /// cannot.
  HttpServer(const std::string& address, int port);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

  /// Answers requests until the process ends.
  [[noreturn]] void serve(const Handler& handler);

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    int fd = -1;
    std::string request = {};
    std::string response = {};
    size_t sent = 0;
    Clock::time_point since = Clock::now();
  };

  void accept_all();
  // Both return whether the connection is still needed.
  bool receive(Connection& connection, const Handler& handler) const;
  static bool send_some(Connection& connection);
  HttpResponse answer(const std::string& request, const Handler& handler) const;
  bool is_meant_for_us(const std::string& host) const;

  std::string address_;
  int port_ = 0;
  int fd_ = -1;
  std::vector<Connection> connections_;
};

}  // namespace tensorpack
