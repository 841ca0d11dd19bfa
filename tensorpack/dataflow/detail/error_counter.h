// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <string>

namespace tensorpack::detail {

/// Counts and logs what is left out because of errors: the first few, then now and then. Any thread
/// may use it.
class ErrorCounter {
 public:
  explicit ErrorCounter(std::string stage) : stage_(std::move(stage)) {}

  /// To be called where an exception was caught. Throws again what is no std::exception, and what
  /// ends a training on purpose.
  void count(const std::string& what);

  int64_t total() const { return total_.load(std::memory_order_relaxed); }

 private:
  std::string stage_;
  std::atomic<int64_t> total_ = 0;
};

}  // namespace tensorpack::detail
