// SPDX-License-Identifier: Apache-2.0
// `tp watch`, asked as a browser asks it, and as nobody should.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tensorpack/monitors/report/page.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/child_process.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

void write_report(const fs::path& run, const std::string& data) {
  fs::create_directories(run);
  write_file_atomically(run / "report.html",
                        "<html>" + std::string(report::kDataBegin) + data + "</script></html>");
}

class WatchTest : public testing::Test {
 protected:
  void start(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {TENSORPACK_TP, "watch"});
    tp_ = std::make_unique<ChildProcess>(arguments);
    ASSERT_TRUE(tp_->read_until("Ctrl-C")) << tp_->output();
    const size_t colon = tp_->output().find(':', tp_->output().find("http://") + 7);
    port_ = std::stoi(tp_->output().substr(colon + 1));
  }

  int connect_to_it() const {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(static_cast<uint16_t>(port_));
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0);
    return fd;
  }

  // Sends a request as it is and returns all of the answer.
  std::string ask_raw(const std::string& request) const {
    const int fd = connect_to_it();
    EXPECT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string answer;
    char buffer[4096];
    for (ssize_t count = 0; (count = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(count));
    }
    close(fd);
    return answer;
  }
  std::string ask(const std::string& path) const {
    return ask_raw("GET " + path + " HTTP/1.1\r\nHost: localhost:1\r\n\r\n");
  }
  std::string body_of(const std::string& path) const {
    const std::string answer = ask(path);
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    return answer.substr(answer.find("\r\n\r\n") + 4);
  }

  TempDir dir_;
  int port_ = 0;
  std::unique_ptr<ChildProcess> tp_;
};

TEST_F(WatchTest, ServesThePageAndTheDataOfEveryRun) {
  write_report(dir_ / "one", R"({"n":1})");
  write_report(dir_ / "two", R"({"n":2})");
  start({dir_ / "one", dir_ / "two"});
  EXPECT_EQ(body_of("/"), report::page());
  const json runs = json::parse(body_of("/runs"));
  ASSERT_EQ(runs.size(), 2);
  EXPECT_EQ(runs[1]["name"], "two");
  EXPECT_EQ(body_of("/runs/0?x=1"), R"({"n":1})");
  EXPECT_EQ(body_of("/runs/1"), R"({"n":2})");
}

TEST_F(WatchTest, ADirectoryStandsForTheRunsInItAndThoseThatCome) {
  write_report(dir_ / "b", "{}");
  start({dir_.path()});
  EXPECT_EQ(json::parse(body_of("/runs")).size(), 1);
  write_report(dir_ / "a", "{}");
  const json runs = json::parse(body_of("/runs"));
  ASSERT_EQ(runs.size(), 2);
  EXPECT_EQ(runs[0]["name"], "b") << "a run keeps its place";
}

TEST_F(WatchTest, TheVersionTellsThatAReportIsNew) {
  fs::create_directory(dir_ / "run");
  start({dir_ / "run"});
  EXPECT_TRUE(json::parse(body_of("/runs"))[0]["version"].is_null());
  EXPECT_THAT(ask("/runs/0"), StartsWith("HTTP/1.1 404"));
  write_report(dir_ / "run", R"({"n":1})");
  const json first = json::parse(body_of("/runs"))[0]["version"];
  write_report(dir_ / "run", R"({"n":22})");
  const json second = json::parse(body_of("/runs"))[0]["version"];
  EXPECT_TRUE(first.is_string());
  EXPECT_NE(first, second);
}

TEST_F(WatchTest, NoOtherFileCanBeRead) {
  write_report(dir_ / "run", "{}");
  std::ofstream(dir_ / "run/secret") << "secret";
  start({dir_ / "run"});
  for (const char* path : {"/secret", "/../run/secret", "/runs/0/secret", "/runs/1", "/runs/-1",
                           "/runs/", "/runs/99999999999999999999", "/report.html", "//runs"}) {
    EXPECT_THAT(ask(path), StartsWith("HTTP/1.1 404")) << path;
  }
}

TEST_F(WatchTest, WrongRequestsAreRefusedAndTheNextIsAnswered) {
  write_report(dir_ / "run", "{}");
  start({dir_ / "run"});
  EXPECT_THAT(ask_raw("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"), StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask_raw("nonsense\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask_raw("GET /\r\n\r\n"), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask_raw("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(ask_raw("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 421"));
  EXPECT_THAT(ask_raw("GET /" + std::string(20'000, 'x')), StartsWith("HTTP/1.1 431"));
  EXPECT_EQ(body_of("/runs/0"), "{}");
}

TEST_F(WatchTest, ConnectionsThatSayNothingDoNotBlockOthers) {
  write_report(dir_ / "run", "{}");
  start({dir_ / "run"});
  std::vector<int> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to_it());
  EXPECT_EQ(body_of("/runs/0"), "{}");
  for (const int fd : silent) close(fd);
}

TEST_F(WatchTest, WrongUsageIsExplained) {
  ChildProcess missing({TENSORPACK_TP, "watch", "/no/such/directory"});
  EXPECT_EQ(missing.wait(), 2);
  EXPECT_THAT(missing.output(), HasSubstr("[tp watch] '/no/such/directory' is no directory."));
  ChildProcess nowhere({TENSORPACK_TP, "watch", "--address", "here", dir_.path()});
  EXPECT_EQ(nowhere.wait(), 2);
  EXPECT_THAT(nowhere.output(), HasSubstr("'here' is no IPv4 address"));
  start({dir_.path()});
  ChildProcess second({TENSORPACK_TP, "watch", "--port", std::to_string(port_), dir_.path()});
  EXPECT_EQ(second.wait(), 2);
  EXPECT_THAT(second.output(), HasSubstr("Choose another port"));
}

}  // namespace
}  // namespace tensorpack
