// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/rerun_on_save.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "programs/tp/job.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kBetweenLooks{50};

template <typename... Args>
void report(fmt::format_string<Args...> text, Args&&... args) {
  fmt::print(stderr, "tp run: {}\n", fmt::format(text, std::forward<Args>(args)...));
}

/// A process with this terminal and these streams.
class Child {
 public:
  Child(const Words& command, std::chrono::milliseconds grace) : grace_(grace) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    const pid_t parent = getpid();
    pid_ = fork();
    TP_CHECK(pid_ >= 0, kTpRun, "no process could be made: {}.", std::strerror(errno));
    if (pid_ > 0) return;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  /// An error of the watch, too, leaves a training the time to save.
  ~Child() {
    if (running()) send(SIGTERM);
    for (const auto until = Clock::now() + grace_; running() && Clock::now() < until;) {
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (!running()) return;
    send(SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Notes that it has ended, if it has.
  bool running() {
    int status = 0;
    if (!status_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return !status_;
  }
  int status() const { return status_.value_or(-1); }
  void send(int signal) const { kill(pid_, signal); }

 private:
  std::chrono::milliseconds grace_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

/// The times and sizes of some files, which an editor changes when it saves one; nothing of those
/// that are not there.
using Look = std::map<fs::path, std::optional<std::pair<fs::file_time_type, uintmax_t>>>;

Look look_at(const std::vector<fs::path>& files) {
  Look seen;
  for (const fs::path& file : files) {
    std::error_code no_time, no_size;
    const auto time = fs::last_write_time(file, no_time);
    const uintmax_t size = fs::file_size(file, no_size);
    seen[file] = no_time || no_size ? std::nullopt : std::optional(std::pair(time, size));
  }
  return seen;
}

class Watch {
 public:
  Watch(const UserProgram& program, const Words& command, std::chrono::milliseconds grace)
      : program_(program), command_(command), grace_(grace) {}

  int run() {
    while (!ended_by_) {
      build_and_start();
      if (!ended_by_) wait_for_save();
    }
    if (child_) await_end();
    return child_ ? child_->status() : 128 + *ended_by_;
  }

 private:
  void build_and_start() {
    built_ = look_at(program_.files());
    began_ = fs::file_time_type::clock::now();
    const bool succeeded = build();
    files_ = program_.files();  // with the headers, which are known now
    take_signals();
    if (ended_by_) return;
    if (!succeeded) {
      const bool goes_on = child_ && child_->running();
      report("{}",
             goes_on ? "the program goes on as it was." : "waiting for a change; Ctrl-C ends.");
      return;
    }
    if (child_ && child_->running()) {
      report("compiled. Ending the program, to start it again ...");
      child_->send(SIGTERM);  // by which a training saves
      await_end();
    }
    if (ended_by_) return;
    child_.reset();
    child_.emplace(command_, grace_);
    is_end_reported_ = false;
  }

  /// An error, as of a full disk, leaves the running program alone, too. That of the first build is
  /// the caller's: of an option that no compiler knows, or a cache that cannot be written, which no
  /// save would change.
  bool build() {
    const bool is_first = std::exchange(is_first_build_, false);
    try {
      return program_.build();
    } catch (const std::exception& error) {
      take_signals();  // Ctrl-C ends a compiler, too
      if (is_first && !ended_by_) throw;
      if (!ended_by_) fmt::print(stderr, "{}\n", error.what());
      return false;
    }
  }

  /// Of a program that was sent a signal; one that outlives the grace is killed.
  void await_end() {
    const auto until = Clock::now() + grace_;
    while (child_->running() && Clock::now() < until) wait();
    if (!child_->running()) return;
    report("the program did not end within {} s. Killing it ...",
           std::chrono::duration<double>(grace_).count());
    child_->send(SIGKILL);
    while (child_->running()) wait();
  }

  void wait_for_save() {
    for (auto before = look_at(files_); !ended_by_; wait()) {
      const auto now = look_at(files_);
      // An editor may take a moment: what it writes is whole when two looks are alike.
      if (now == before && has_changed(now)) return;
      before = now;
      report_end();
    }
  }

  /// Whether a file is another than when the last build began. Of headers that were not known then
  /// only the time tells.
  bool has_changed(const Look& now) {
    for (const auto& [file, seen] : now) {
      const auto [before, is_new] = built_.try_emplace(file, seen);
      if (before->second != seen || (is_new && seen && seen->first > began_)) return true;
    }
    return false;
  }

  void report_end() {
    if (!child_ || child_->running() || is_end_reported_) return;
    report("the program ended with status {}. Waiting for a change; Ctrl-C ends.",
           child_->status());
    is_end_reported_ = true;
  }

  void wait() {
    pollfd source = {.fd = signals_.fd(), .events = POLLIN, .revents = 0};
    poll(&source, 1, static_cast<int>(kBetweenLooks.count()));
    take_signals();
  }

  /// A signal of the terminal reaches the program by itself, but for the end of the terminal, which
  /// only the leader of the session gets.
  void take_signals() {
    signalfd_siginfo info{};
    while (read(signals_.fd(), &info, sizeof(info)) == sizeof(info)) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (signal != SIGUSR1) ended_by_ = signal;  // SIGUSR1 has a training save, and go on
      const bool is_of_leader = signal == SIGHUP && getsid(0) == getpid();
      const bool is_passed_on = info.ssi_code != SI_KERNEL || is_of_leader;
      if (child_ && child_->running() && is_passed_on) child_->send(signal);
    }
  }

  const UserProgram& program_;
  const Words& command_;
  const std::chrono::milliseconds grace_;
  SignalReader signals_;
  std::vector<fs::path> files_;
  Look built_;                     // when the last build began,
  fs::file_time_type began_ = {};  // which was then
  std::optional<Child> child_;
  std::optional<int> ended_by_;
  bool is_end_reported_ = false;
  bool is_first_build_ = true;
};

}  // namespace

int rerun_on_save(const UserProgram& program, const Words& command,
                  std::chrono::milliseconds grace) {
  return Watch(program, command, grace).run();
}

}  // namespace tensorpack
