// SPDX-License-Identifier: Apache-2.0
// A browser without a window, for tests of pages: Chromium, by its DevTools protocol over a pipe.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace tensorpack {

class Browser {
 public:
  using json = nlohmann::json;

  /// The program; empty when there is none.
  static std::string program() {
    std::istringstream folders(std::getenv("PATH") ? std::getenv("PATH") : "");
    for (std::string folder; std::getline(folders, folder, ':');) {
      for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
        const std::string path = folder + "/" + name;
        if (access(path.c_str(), X_OK) == 0) return path;
      }
    }
    return "";
  }

  /// Starts it with one empty page; `profile` is an empty directory of its own.
  explicit Browser(const std::filesystem::path& profile) {
    start({program(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
           "--hide-scrollbars", "--no-first-run", "--disable-dev-shm-usage",
           "--user-data-dir=" + profile.string(), "about:blank"});
    const std::string target =
        call("Target.createTarget", {{"url", "about:blank"}})["targetId"].get<std::string>();
    session_ = call("Target.attachToTarget", {{"targetId", target}, {"flatten", true}})["sessionId"]
                   .get<std::string>();
    for (const char* domain : {"Page.enable", "Runtime.enable", "Log.enable"}) call(domain);
  }

  ~Browser() {
    close(to_);
    close(from_);
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  /// Calls a method of the protocol and returns its result; throws when it fails.
  json call(const std::string& method, const json& parameters = json::object()) {
    json message = {{"id", ++last_id_}, {"method", method}, {"params", parameters}};
    if (!session_.empty()) message["sessionId"] = session_;
    const std::string text = message.dump() + '\0';
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t count = write(to_, text.data() + sent, text.size() - sent);
      if (count <= 0) throw std::runtime_error("the browser does not take " + method);
      sent += static_cast<size_t>(count);
    }
    while (true) {
      const json answer = next_message();
      if (answer.value("id", 0) != last_id_) continue;
      if (answer.contains("error")) throw std::runtime_error(method + ": " + answer.dump());
      return answer["result"];
    }
  }

  void open(const std::string& url) {
    is_loaded_ = false;
    call("Page.navigate", {{"url", url}});
    while (!is_loaded_) next_message();
  }

  /// The value of an expression in the page; waits for it when it is a promise.
  json evaluate(const std::string& expression) {
    const json answer =
        call("Runtime.evaluate",
             {{"expression", expression}, {"returnByValue", true}, {"awaitPromise", true}});
    if (answer.contains("exceptionDetails")) throw std::runtime_error(answer.dump());
    return answer["result"].value("value", json());
  }

  /// Lets the page draw what it has to draw.
  void settle() {
    evaluate("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))");
  }

  void mouse(const std::string& type, double x, double y, int clicks = 0) {
    call("Input.dispatchMouseEvent",
         {{"type", type},
          {"x", x},
          {"y", y},
          {"button", type == "mouseMoved" && !is_down_ ? "none" : "left"},
          {"buttons", is_down_ || type == "mousePressed" ? 1 : 0},
          {"clickCount", clicks}});
    if (type == "mousePressed") is_down_ = true;
    if (type == "mouseReleased") is_down_ = false;
    settle();
  }

  /// Presses a key; `modifiers` is 8 for shift.
  void press(const std::string& key, int modifiers = 0) {
    json event = {{"type", "keyDown"}, {"key", key}, {"code", key}, {"modifiers", modifiers}};
    if (key.size() == 1) event["text"] = key;
    if (key == "Tab") event["windowsVirtualKeyCode"] = 9;
    if (key == "Enter") event.update({{"windowsVirtualKeyCode", 13}, {"text", "\r"}});
    call("Input.dispatchKeyEvent", event);
    call("Input.dispatchKeyEvent", {{"type", "keyUp"}, {"key", key}, {"modifiers", modifiers}});
    settle();
  }

  void resize(int width, int height, bool is_phone = false) {
    call("Emulation.setDeviceMetricsOverride", {{"width", width},
                                                {"height", height},
                                                {"deviceScaleFactor", is_phone ? 2 : 1},
                                                {"mobile", is_phone}});
    settle();
  }

  void prefer_colors(const std::string& scheme) {
    call("Emulation.setEmulatedMedia",
         {{"features", {{{"name", "prefers-color-scheme"}, {"value", scheme}}}}});
    settle();
  }

  /// What is seen, as a PNG file in base64.
  std::string screenshot() {
    return call("Page.captureScreenshot", {{"format", "png"}})["data"].get<std::string>();
  }

  /// Exceptions, errors and warnings of the page so far.
  const std::vector<std::string>& problems() const { return problems_; }

 private:
  void start(std::vector<std::string> command) {
    int to_browser[2];
    int from_browser[2];
    EXPECT_EQ(pipe2(to_browser, O_CLOEXEC), 0);
    EXPECT_EQ(pipe2(from_browser, O_CLOEXEC), 0);
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      // By way of numbers that are surely free: the ends may themselves be 3 and 4.
      const int read_end = fcntl(to_browser[0], F_DUPFD, 10);
      const int write_end = fcntl(from_browser[1], F_DUPFD, 10);
      dup2(read_end, 3);
      dup2(write_end, 4);
      const int nothing = ::open("/dev/null", O_WRONLY);
      dup2(nothing, STDOUT_FILENO);
      dup2(nothing, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(to_browser[0]);
    close(from_browser[1]);
    to_ = to_browser[1];
    from_ = from_browser[0];
  }

  json next_message() {
    size_t end = 0;
    while ((end = received_.find('\0')) == std::string::npos) {
      pollfd event{.fd = from_, .events = POLLIN, .revents = 0};
      if (poll(&event, 1, /*timeout=*/60'000) <= 0) throw std::runtime_error("no answer in time");
      char buffer[1 << 16];
      const ssize_t count = read(from_, buffer, sizeof(buffer));
      if (count <= 0) throw std::runtime_error("the browser has ended");
      received_.append(buffer, static_cast<size_t>(count));
    }
    json message = json::parse(received_.substr(0, end));
    received_.erase(0, end + 1);
    note_event(message);
    return message;
  }

  void note_event(const json& message) {
    const std::string method = message.value("method", "");
    if (method == "Page.loadEventFired") is_loaded_ = true;
    const json parameters = message.value("params", json::object());
    const std::string kind = parameters.value("type", "");
    const bool is_problem =
        method == "Runtime.exceptionThrown" || method == "Log.entryAdded" ||
        (method == "Runtime.consoleAPICalled" && (kind == "error" || kind == "warning"));
    if (is_problem) problems_.push_back(message.dump());
  }

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  int last_id_ = 0;
  std::string session_;
  std::string received_;
  bool is_loaded_ = false;
  bool is_down_ = false;
  std::vector<std::string> problems_;
};

}  // namespace tensorpack
