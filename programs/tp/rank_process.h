// SPDX-License-Identifier: Apache-2.0
// One rank that the launcher has started.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tensorpack {

/// What is read from a pipe, written on line by line behind a prefix. A line without an end is
/// written, too, when nothing follows.
class PrefixedStream {
 public:
  PrefixedStream(int from, int to, std::string prefix);
  ~PrefixedStream();
  PrefixedStream(const PrefixedStream&) = delete;
  PrefixedStream& operator=(const PrefixedStream&) = delete;

  int fd() const { return from_; }
  bool open() const { return from_ >= 0; }
  /// Reads what is there without waiting.
  void forward();
  /// Writes a line that was begun a while ago.
  void flush_stale();
  /// Takes what is left, and ends.
  void close();

 private:
  void flush();

  int from_;
  int to_;
  std::string prefix_;
  std::string line_;
  std::chrono::steady_clock::time_point last_read_;
};

enum class RankInput {
  kNothing,
  kRelayed,  ///< what the launcher itself is given
  kSignals,  ///< the numbers of signals, one a line; it ends with the launcher
};

struct RankCommand {
  int rank = 0;
  std::vector<std::string> words;
  std::map<std::string, std::string> variables;
  RankInput input = RankInput::kNothing;
};

/// A process that is gone when this object is, with all that it has started.
class RankProcess {
 public:
  explicit RankProcess(const RankCommand& command);
  ~RankProcess();
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  int rank() const { return rank_; }
  bool running() const { return !status_; }
  /// As a shell has it: 128 + the signal for one that was killed.
  int status() const { return status_.value_or(-1); }
  std::string describe_end() const;

  /// To the process and all that it has started; SIGUSR1 to the process alone. A process that takes
  /// signals from its input gets them there, but for SIGKILL.
  void send(int signal) const;
  /// Notes that it has ended, if it has.
  void collect();

  /// The pipe to its standard input, or -1 when it takes none of what is relayed.
  int input() const { return input_kind_ == RankInput::kRelayed ? input_ : -1; }
  void close_input();
  std::vector<PrefixedStream*> streams() { return {&output_, &errors_}; }

 private:
  struct Pipes;
  RankProcess(const RankCommand& command, Pipes pipes);

  int rank_;
  PrefixedStream output_;
  PrefixedStream errors_;
  int input_;
  RankInput input_kind_;
  pid_t pid_;
  std::optional<int> status_;
};

}  // namespace tensorpack
