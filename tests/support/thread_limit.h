// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// While it lives, only so many more threads can be started in this process, as when a limit of the
/// system is reached.
class [[nodiscard]] ThreadLimit {
 public:
  explicit ThreadLimit(int more);
  ~ThreadLimit();
  ThreadLimit(const ThreadLimit&) = delete;
  ThreadLimit& operator=(const ThreadLimit&) = delete;
};

}  // namespace tensorpack
