// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/peer_process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "benchmarks/bench.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::bench {

struct PeerProcess::Process {
  std::string name;
  std::string facts;
  pid_t pid = 0;
  int channel = -1;  // our end of a socket pair, the peer's standard input and output
  std::FILE* replies = nullptr;

  ~Process() {
    if (replies != nullptr)
      std::fclose(replies);  // closes the channel: the peer reads the end of its input
    if (pid > 0) waitpid(pid, nullptr, 0);
  }

  /// What became of a peer that does not answer any more.
  std::string end() {
    int status = 0;
    for (int tries = 0; tries < 100; ++tries) {  // it has closed its output, and is about to end
      if (waitpid(pid, &status, WNOHANG) == pid) {
        pid = 0;
        if (WIFSIGNALED(status)) {
          return fmt::format("was ended by signal {} ({})", WTERMSIG(status),
                             strsignal(WTERMSIG(status)));
        }
        return fmt::format("ended with status {}", WEXITSTATUS(status));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return "is still there";
  }

  /// One line from the peer, without its newline; empty at the end of its output.
  std::string read_line() const {
    char buffer[4096];
    if (std::fgets(buffer, sizeof buffer, replies) == nullptr) return {};
    return std::string(buffer, std::strcspn(buffer, "\n"));
  }
};

PeerProcess::PeerProcess(std::vector<std::string> command) : process_(std::make_shared<Process>()) {
  process_->name = fmt::format("{}", fmt::join(command, " "));
  int ends[2];
  TP_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0, "PeerProcess",
           "cannot open a socket pair: {}. Close other programs.", std::strerror(errno));
  process_->channel = ends[0];
  process_->replies = fdopen(ends[0], "r");

  std::vector<char*> arguments;
  arguments.reserve(command.size() + 1);
  for (auto& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  int failure =
      posix_spawnp(&process_->pid, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failure != 0) {
    process_->pid = 0;
    throw Skip(fmt::format("cannot start '{}': {}", process_->name, std::strerror(failure)));
  }

  auto greeting = process_->read_line();
  if (greeting.starts_with("skip: ")) throw Skip(greeting.substr(6));
  if (greeting != "ready" && !greeting.starts_with("ready "))
    throw Skip(fmt::format("'{}' ended before it was ready", process_->name));
  process_->facts = greeting.substr(std::min(greeting.size(), std::strlen("ready ")));
}

PeerProcess PeerProcess::python(const std::string& script, std::vector<std::string> arguments,
                                const std::string& setting) {
  const char* chosen = std::getenv("TENSORPACK_BENCH_PYTHON");
  arguments.insert(arguments.begin(), {chosen != nullptr ? chosen : "/usr/bin/python3",
                                       TENSORPACK_BENCH_PEERS "/" + script});
  if (!setting.empty()) arguments.insert(arguments.begin(), {"env", setting});
  return PeerProcess(std::move(arguments));
}

double PeerProcess::operator()(int64_t steps) const { return ask(std::to_string(steps)); }

double PeerProcess::ask(const std::string& request) const {
  auto line = request + "\n";
  // MSG_NOSIGNAL: a peer that died must not take us along.
  bool sent = send(process_->channel, line.data(), line.size(), MSG_NOSIGNAL) ==
              static_cast<ssize_t>(line.size());
  auto reply = sent ? process_->read_line() : "";
  TP_CHECK(!reply.empty(), "PeerProcess",
           "'{}' was asked for '{}' and did not answer: it {}. See what it printed, or run it by "
           "hand.",
           process_->name, request, process_->end());
  char* end = nullptr;
  double number = std::strtod(reply.c_str(), &end);
  TP_CHECK(*end == '\0', "PeerProcess",
           "'{}' was asked for '{}' and answered '{}' instead of a number. Run it by hand.",
           process_->name, request, reply);
  return number;
}

const std::string& PeerProcess::facts() const { return process_->facts; }

}  // namespace tensorpack::bench
