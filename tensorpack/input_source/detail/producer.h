// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tensorpack/utils/bounded_queue.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack::detail {

/// One run of a thread that makes things ahead of their use, from a start to its end. Another start
/// takes another producer, so that nothing of the old one can reach the new queue.
template <typename T>
class Producer {
 public:
  /// `start` is called once, then `make` until it gives nothing; both on the thread.
  struct Work {
    std::string thread_name = {};
    size_t capacity = 1;
    std::function<void()> start = {};
    std::function<std::optional<T>()> make = {};
  };

  explicit Producer(Work work)
      : queue_(work.capacity), thread_([this, work = std::move(work)] { produce(work); }) {}

  ~Producer() {
    queue_.close();
    thread_.join();
  }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  /// nullopt at the end. What `work` threw is thrown here, after what it had made before.
  std::optional<T> next() {
    auto item = queue_.pop();
    // Set before the queue was closed, so what came before the failure has been delivered.
    if (!item && failure_) std::rethrow_exception(failure_);
    return item;
  }

  size_t size() const { return queue_.size(); }

 private:
  void produce(const Work& work) {
    set_thread_name(work.thread_name);
    single_threaded_ops();
    try {
      work.start();
      while (auto item = work.make()) {
        if (!queue_.push(std::move(*item))) return;
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
    queue_.close();
  }

  BoundedQueue<T> queue_;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace tensorpack::detail
