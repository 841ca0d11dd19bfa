// SPDX-License-Identifier: Apache-2.0
// How code deep inside learns that the thread it runs on is to end.
#pragma once

#include <atomic>

namespace tensorpack {

/// Whether the owner of the calling thread wants it to end, or the owner of that one, and so on.
/// For code that waits for something that may never come.
bool stop_requested();

/// While it lives, stop_requested() of the calling thread says what `flag` says.
class [[nodiscard]] StopScope {
 public:
  explicit StopScope(const std::atomic<bool>& flag);
  ~StopScope();
  StopScope(const StopScope&) = delete;
  StopScope& operator=(const StopScope&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

}  // namespace tensorpack
