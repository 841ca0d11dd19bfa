// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace tensorpack {

/// Threads that work for the consumer of what they make, and end with it.
///
/// When a signal is to end the process (see SignalWatch) nobody waits for one that is stuck: it is
/// left behind with all that it uses, which its body should therefore own.
class AbandonableThreads {
 public:
  /// `name` is that of each thread, and of all in messages.
  explicit AbandonableThreads(std::string name);
  /// As end().
  ~AbandonableThreads();
  AbandonableThreads(const AbandonableThreads&) = delete;
  AbandonableThreads& operator=(const AbandonableThreads&) = delete;

  /// Starts one more. `body` must not throw, and learns from stop_requested() that it is to end.
  void start(std::function<void()> body);

  /// Lets stop_requested() of the threads be true. What they wait for is woken up by the caller.
  void request_stop();

  /// Requests a stop, and waits for the threads. False if they were left behind, and may still use
  /// what they used.
  bool end();

 private:
  struct State;
  bool wait_for_end() const;

  std::string name_;
  std::shared_ptr<State> state_;  // shared with the threads
  std::vector<std::thread> threads_;
  bool are_left_behind_ = false;
};

}  // namespace tensorpack
