// SPDX-License-Identifier: Apache-2.0
// A queue between threads that holds a limited number of values.
//
// It ends in one of two ways, which its consumers can tell apart: close(), after which they get
// what is left and then nothing, or fail(), after which they get the exception at once.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack {

/// A blocking queue for any number of producers and consumers.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(std::size_t capacity) : capacity_(capacity) {
    TP_CHECK(capacity > 0, "BoundedQueue", "the capacity must be positive, got 0. Pass 1 or more.");
  }
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  /// Waits for room and appends; false, and the value is gone, when the queue has ended.
  bool push(T value) {
    std::unique_lock lock(mutex_);
    has_room_.wait(lock, [this] { return ended_ || values_.size() < capacity_; });
    return !ended_ && append(std::move(value), lock);
  }

  /// Appends if there is room; otherwise, or when the queue has ended, leaves `value` untouched.
  bool try_push(T&& value) {
    std::unique_lock lock(mutex_);
    return !ended_ && values_.size() < capacity_ && append(std::move(value), lock);
  }

  /// Waits for the next value; nothing once the queue is closed and drained. Rethrows a failure.
  std::optional<T> pop() {
    std::unique_lock lock(mutex_);
    has_news_.wait(lock, [this] { return ended_ || !values_.empty(); });
    return take(lock);
  }

  /// The same, but gives up after `patience`: then nothing comes although finished() is false.
  template <typename Rep, typename Period>
  std::optional<T> pop_for(std::chrono::duration<Rep, Period> patience) {
    std::unique_lock lock(mutex_);
    has_news_.wait_for(lock, patience, [this] { return ended_ || !values_.empty(); });
    return take(lock);
  }

  /// The next value if it is there. Rethrows a failure.
  std::optional<T> try_pop() {
    std::unique_lock lock(mutex_);
    return take(lock);
  }

  /// Ends the queue: producers are refused, consumers get what is left. Either side may call it.
  void close() {
    const std::lock_guard lock(mutex_);
    end();
  }

  /// Ends the queue with an exception for every consumer, now and later; drops what is left.
  /// Only the first failure counts.
  void fail(std::exception_ptr failure) {
    std::deque<T> dropped;  // destroyed after the lock is released
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = std::move(failure);
    dropped.swap(values_);
    end();
  }

  std::size_t capacity() const { return capacity_; }

  std::size_t size() const {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

  /// Whether producers are refused.
  bool closed() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

  /// Whether no value will ever come again.
  bool finished() const {
    const std::lock_guard lock(mutex_);
    return ended_ && values_.empty();
  }

 private:
  bool append(T&& value, std::unique_lock<std::mutex>& lock) {
    values_.push_back(std::move(value));
    lock.unlock();
    has_news_.notify_one();
    return true;
  }

  std::optional<T> take(std::unique_lock<std::mutex>& lock) {
    if (failure_) std::rethrow_exception(failure_);
    if (values_.empty()) return std::nullopt;
    std::optional<T> value(std::move(values_.front()));
    values_.pop_front();
    lock.unlock();
    has_room_.notify_one();
    return value;
  }

  void end() {
    ended_ = true;
    has_room_.notify_all();
    has_news_.notify_all();
  }

  const std::size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable has_room_;
  std::condition_variable has_news_;  // a value, or the end
  std::deque<T> values_;
  std::exception_ptr failure_;
  bool ended_ = false;
};

}  // namespace tensorpack
