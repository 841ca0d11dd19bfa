// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/job.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace tensorpack {

namespace {

using Clock = std::chrono::steady_clock;

/// After the grace: to end in order, before there is no choice any more.
constexpr std::chrono::seconds kLastChance{5};

sigset_t watched_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    sigaddset(&set, signal);
  }
  return set;
}

class Job {
 public:
  Job(const std::vector<RankCommand>& commands, SignalReader& signals,
      std::chrono::milliseconds grace)
      : signals_(signals), grace_(grace) {
    for (const RankCommand& command : commands) {
      ranks_.push_back(std::make_unique<RankProcess>(command));
    }
  }

  JobEnd run() {
    while (std::any_of(ranks_.begin(), ranks_.end(), [](auto& rank) { return rank->running(); })) {
      wait();
      for (int signal = signals_.next(); signal != 0; signal = signals_.next()) receive(signal);
      for (const auto& rank : ranks_) {
        for (PrefixedStream* stream : rank->streams()) {
          stream->forward();
          stream->flush_stale();
        }
        collect(*rank);
      }
      insist();
    }
    return end_;
  }

 private:
  void wait() {
    std::vector<pollfd> sources = {{.fd = signals_.fd(), .events = POLLIN, .revents = 0}};
    for (const auto& rank : ranks_) {
      for (PrefixedStream* stream : rank->streams()) {
        if (stream->open()) sources.push_back({.fd = stream->fd(), .events = POLLIN, .revents = 0});
      }
    }
    const bool reads = wants_input();
    if (reads) sources.push_back({.fd = STDIN_FILENO, .events = POLLIN, .revents = 0});
    constexpr int kTick = 100;
    poll(sources.data(), sources.size(), kTick);
    if (reads && sources.back().revents != 0) read_input();
    write_input();
  }

  /// Reading from a terminal in the background would stop the launcher.
  bool wants_input() const {
    const bool may = isatty(STDIN_FILENO) == 0 || tcgetpgrp(STDIN_FILENO) == getpgrp();
    return may && !input_ended_ && input_.empty() && ranks_.front()->input() >= 0;
  }

  void read_input() {
    char buffer[1 << 12];
    const ssize_t count = read(STDIN_FILENO, buffer, sizeof(buffer));
    if (count > 0) {
      input_.assign(buffer, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      input_ended_ = true;
      ranks_.front()->close_input();
    }
  }

  void write_input() {
    const int fd = ranks_.front()->input();
    if (input_.empty() || fd < 0) return;
    const ssize_t count = write(fd, input_.data(), input_.size());
    if (count > 0) {
      input_.erase(0, static_cast<size_t>(count));
    } else if (errno != EAGAIN) {
      ranks_.front()->close_input();  // it reads no more
    }
  }

  void receive(int signal) {
    if (signal == SIGCHLD) return;
    const bool ends = signal != SIGUSR1;  // by which ranks save and go on
    if (ends && end_.signal == 0) {
      end_.signal = signal;
      begin_grace();
    }
    for (const auto& rank : ranks_) rank->send(signal);
  }

  void collect(RankProcess& rank) {
    if (!rank.running()) return;
    rank.collect();
    if (rank.running() || rank.status() == 0 || end_.status != 0) return;
    end_.status = rank.status();
    fmt::print(stderr, "tp launch: {}.\n", rank.describe_end());
    begin_grace();
  }

  void begin_grace() {
    if (!end_at_) end_at_ = Clock::now() + grace_;
  }

  void insist() {
    if (!end_at_ || Clock::now() < *end_at_) return;
    const bool last = std::exchange(insisted_, true);
    end_at_ = Clock::now() + std::min<std::chrono::milliseconds>(kLastChance, grace_);
    for (const auto& rank : ranks_) {
      if (!rank->running()) continue;
      fmt::print(stderr, "tp launch: rank {} does not end; {}.\n", rank->rank(),
                 last ? "killing it" : "sending SIGTERM");
      rank->send(last ? SIGKILL : SIGTERM);
    }
  }

  std::vector<std::unique_ptr<RankProcess>> ranks_;
  SignalReader& signals_;
  std::chrono::milliseconds grace_;
  JobEnd end_;
  std::optional<Clock::time_point> end_at_;
  bool insisted_ = false;
  std::string input_;  // read, and not yet taken by rank 0
  bool input_ended_ = false;
};

}  // namespace

SignalReader::SignalReader() {
  const sigset_t set = watched_signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  fd_ = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

SignalReader::~SignalReader() {
  close(fd_);
  const sigset_t set = watched_signals();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

int SignalReader::next() {
  signalfd_siginfo info{};
  return read(fd_, &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo) : 0;
}

JobEnd run_job(const std::vector<RankCommand>& commands, SignalReader& signals,
               std::chrono::milliseconds grace) {
  return Job(commands, signals, grace).run();
}

}  // namespace tensorpack
