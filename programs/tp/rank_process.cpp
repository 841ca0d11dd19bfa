// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/rank_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack {

namespace {

constexpr std::chrono::milliseconds kStale{500};
constexpr size_t kLongestLine = 1 << 16;

void write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t count = write(fd, text.data() + done, text.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;  // nobody reads any more
    done += static_cast<size_t>(count);
  }
}

std::pair<int, int> make_pipe() {
  int ends[2];
  TP_CHECK(pipe2(ends, O_CLOEXEC) == 0, "tp launch", "no pipe could be made: {}.",
           std::strerror(errno));
  return {ends[0], ends[1]};
}

/// In the child: becomes the command. Must not return.
[[noreturn]] void become(const RankCommand& command, pid_t parent) {
  // A group of its own: Ctrl-C on the terminal reaches the launcher alone, which passes it on once.
  setpgid(0, 0);
  // The launcher may be killed without a chance to end us.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  std::signal(SIGPIPE, SIG_DFL);  // which the launcher ignores
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const auto& [name, value] : command.variables) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv;
  for (const std::string& word : command.words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  const std::string text =
      fmt::format("tp launch: '{}' cannot be started: {}\n", argv[0], std::strerror(errno));
  write_all(STDERR_FILENO, text);
  _exit(127);
}

}  // namespace

PrefixedStream::PrefixedStream(int from, int to, std::string prefix)
    : from_(from), to_(to), prefix_(std::move(prefix)) {
  fcntl(from_, F_SETFL, O_NONBLOCK);
}

PrefixedStream::~PrefixedStream() { close(); }

void PrefixedStream::forward() {
  char buffer[1 << 14];
  while (from_ >= 0) {
    const ssize_t count = read(from_, buffer, sizeof(buffer));
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      ::close(std::exchange(from_, -1));
      flush();
      return;
    }
    last_read_ = std::chrono::steady_clock::now();
    std::string text;
    for (ssize_t i = 0; i < count; ++i) {
      line_ += buffer[i];
      if (buffer[i] == '\n' || line_.size() >= kLongestLine) {
        if (line_.back() != '\n') line_ += '\n';
        text += prefix_ + line_;
        line_.clear();
      }
    }
    write_all(to_, text);
  }
}

void PrefixedStream::flush() {
  if (line_.empty()) return;
  write_all(to_, prefix_ + line_ + "\n");
  line_.clear();
}

void PrefixedStream::flush_stale() {
  if (std::chrono::steady_clock::now() - last_read_ >= kStale) flush();
}

void PrefixedStream::close() {
  forward();
  if (from_ >= 0) ::close(std::exchange(from_, -1));
  flush();
}

struct RankProcess::Pipes {
  std::pair<int, int> output = make_pipe();
  std::pair<int, int> errors = make_pipe();
  std::pair<int, int> input = make_pipe();
};

RankProcess::RankProcess(const RankCommand& command) : RankProcess(command, Pipes()) {}

RankProcess::RankProcess(const RankCommand& command, Pipes pipes)
    : rank_(command.rank),
      output_(pipes.output.first, STDOUT_FILENO, fmt::format("[{}] ", command.rank)),
      errors_(pipes.errors.first, STDERR_FILENO, fmt::format("[{}] ", command.rank)),
      input_(pipes.input.second),
      input_kind_(command.input) {
  const pid_t parent = getpid();
  pid_ = fork();
  TP_CHECK(pid_ >= 0, "tp launch", "no process could be made: {}.", std::strerror(errno));
  if (pid_ == 0) {
    dup2(pipes.input.first, STDIN_FILENO);
    dup2(pipes.output.second, STDOUT_FILENO);
    dup2(pipes.errors.second, STDERR_FILENO);
    become(command, parent);
  }
  setpgid(pid_, pid_);  // whoever of the two comes first
  for (const int theirs : {pipes.input.first, pipes.output.second, pipes.errors.second}) {
    ::close(theirs);
  }
  fcntl(input_, F_SETFL, O_NONBLOCK);
  if (command.input == RankInput::kNothing) close_input();
}

RankProcess::~RankProcess() {
  if (running()) {
    send(SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
  }
  close_input();
}

void RankProcess::close_input() {
  if (input_ >= 0) close(std::exchange(input_, -1));
}

void RankProcess::send(int signal) const {
  if (!running()) return;
  if (input_kind_ == RankInput::kSignals && signal != SIGKILL) {
    write_all(input_, fmt::format("{}\n", signal));
  } else {
    // What a rank has started need not know the signal to save, which would kill it.
    kill(signal == SIGUSR1 ? pid_ : -pid_, signal);
  }
}

void RankProcess::collect() {
  int status = 0;
  if (status_ || waitpid(pid_, &status, WNOHANG) != pid_) return;
  status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  kill(-pid_, SIGKILL);  // what it has left behind
  close_input();
  for (PrefixedStream* stream : streams()) stream->close();
}

std::string RankProcess::describe_end() const {
  if (status() > 128 && status() < 128 + NSIG) {
    return fmt::format("rank {} was ended by signal {} ({})", rank_, status() - 128,
                       strsignal(status() - 128));
  }
  return fmt::format("rank {} ended with status {}", rank_, status());
}

}  // namespace tensorpack
