// SPDX-License-Identifier: Apache-2.0
// Stopwatches: to read, to log one scope, to sum up many scopes, to log the speed of a loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "tensorpack/utils/logger.h"

namespace tensorpack {

/// A stopwatch that starts running when it is made.
class Timer {
 public:
  /// Starts again from zero, running.
  void reset();

  /// Stops the time; does nothing when it is already stopped.
  void pause();

  /// Lets the time go on; does nothing when it is running.
  void resume();

  bool is_paused() const { return paused_; }

  /// Seconds it has been running, pauses left out.
  double seconds() const;

 private:
  using Clock = std::chrono::steady_clock;

  Clock::time_point start_ = Clock::now();
  Clock::duration before_{};  // what was measured before the last pause
  bool paused_ = false;
};

struct TimedOperationOptions {
  bool log_start = false;
};

/// Logs how long its scope took: "Load data finished, time: 2.5 seconds."
///
/// A scope left by an exception is logged as failed.
class [[nodiscard]] TimedOperation {
 public:
  explicit TimedOperation(std::string message, TimedOperationOptions options = {},
                          logging::Location where = logging::Location::current());
  ~TimedOperation();
  TimedOperation(const TimedOperation&) = delete;
  TimedOperation& operator=(const TimedOperation&) = delete;

 private:
  std::string message_;
  logging::Location where_;
  int exceptions_;
  Timer timer_;
};

/// Adds the time of its scope to a process-wide sum under `message`, logged when the process exits.
class [[nodiscard]] TotalTimer {
 public:
  /// What the scopes of one message took together.
  struct Total {
    double seconds = 0;
    std::int64_t count = 0;
  };

  explicit TotalTimer(std::string message);
  ~TotalTimer();
  TotalTimer(const TotalTimer&) = delete;
  TotalTimer& operator=(const TotalTimer&) = delete;

  /// The sums so far, by message.
  static std::map<std::string, Total> totals();

 private:
  std::string message_;
  Timer timer_;
};

/// Logs the speed of a loop every `print_every` calls, counted from the first.
class IterSpeedCounter {
 public:
  explicit IterSpeedCounter(std::int64_t print_every, std::string name = "IterSpeed");

  /// Counts one iteration.
  void operator()(logging::Location where = logging::Location::current());

  std::int64_t count() const { return count_; }

 private:
  std::int64_t print_every_;
  std::string name_;
  std::int64_t count_ = 0;
  Timer timer_;
};

}  // namespace tensorpack
