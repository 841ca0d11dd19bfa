// SPDX-License-Identifier: Apache-2.0
// A program started by a test.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

namespace tensorpack {

/// Runs a program with its output, both streams together, in a pipe.
class ChildProcess {
 public:
  explicit ChildProcess(std::vector<std::string> command) {
    int pipe_ends[2];
    EXPECT_EQ(pipe2(pipe_ends, O_CLOEXEC), 0);
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      // What the test's own parent ignores, as nohup does, would be ignored by the child, too.
      for (const int signal :
           {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ}) {
        std::signal(signal, SIG_DFL);
      }
      dup2(pipe_ends[1], STDOUT_FILENO);
      dup2(pipe_ends[1], STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    close(pipe_ends[1]);
    output_fd_ = pipe_ends[0];
  }
  ~ChildProcess() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    wait();
    if (output_fd_ >= 0) close(output_fd_);
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Reads the output until `text` appears behind the first `from` bytes; false at its end.
  bool read_until(const std::string& text, size_t from = 0) {
    while (output_.find(text, from) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }

  void send(int signal) const { kill(pid_, signal); }

  /// From now on nobody reads the output.
  void close_output() {
    close(output_fd_);
    output_fd_ = -1;
  }

  /// The exit status, or 1000 + the signal that killed it; all of output() is there afterwards.
  int wait() {
    if (pid_ <= 0) return status_;
    while (read_some()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }

  /// What was read so far.
  const std::string& output() const { return output_; }

 private:
  bool read_some() {
    char buffer[4096];
    const ssize_t count = read(output_fd_, buffer, sizeof(buffer));
    if (count <= 0) return false;
    output_.append(buffer, static_cast<size_t>(count));
    return true;
  }

  pid_t pid_ = -1;
  int output_fd_ = -1;
  int status_ = -1;
  std::string output_;
};

}  // namespace tensorpack
