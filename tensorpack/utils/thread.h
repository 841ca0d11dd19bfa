// SPDX-License-Identifier: Apache-2.0
// Threads that say who they are, stop when asked, and hand their exceptions to their owner.
#pragma once

#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

namespace tensorpack {

/// Names the calling thread for debuggers and `top -H`; the system keeps 15 characters.
void set_thread_name(const std::string& name);

/// How many cores the calling thread may run on; at least 1.
int affinity_cores();

/// Makes libtorch's operators run on the calling thread alone. For data workers, which are the
/// parallelism themselves; other threads are not affected.
void single_threaded_ops();

/// Makes libtorch's operators run on `count` threads when they are called by this one; other
/// threads are not affected.
void set_op_threads(int count);

/// While it lives, libtorch's operators run on `count` threads when they are called by this one.
class [[nodiscard]] OpThreadsScope {
 public:
  explicit OpThreadsScope(int count);
  ~OpThreadsScope();
  OpThreadsScope(const OpThreadsScope&) = delete;
  OpThreadsScope& operator=(const OpThreadsScope&) = delete;

 private:
  int outer_;
};

/// A thread with a name. Throws an Error that says what to do if the system has no more of them.
std::thread start_thread(const std::string& name, std::function<void()> body);

/// A thread that is asked to stop and joined when it goes out of scope.
///
/// The body should return soon after a stop is requested: whatever it waits on must be woken up by
/// the owner or by a std::stop_callback. What it throws ends the thread only, and waits for
/// rethrow_if_failed(); a failure nobody asked for is logged.
class StoppableThread {
 public:
  /// No thread.
  StoppableThread() = default;

  StoppableThread(std::string name, std::function<void(std::stop_token)> body);

  void request_stop() { thread_.request_stop(); }

  /// Waits for the body to return; does nothing when there is no thread.
  void join();

  bool joinable() const { return thread_.joinable(); }

  /// Whether the body has returned or thrown.
  bool finished() const;

  /// Throws what the body threw, if it did. May be called while the thread runs.
  void rethrow_if_failed() const;

 private:
  struct State;

  std::shared_ptr<State> state_;
  std::jthread thread_;  // after the state: it is joined first
};

}  // namespace tensorpack
