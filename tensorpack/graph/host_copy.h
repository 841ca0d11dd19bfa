// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <stop_token>

#include "tensorpack/graph/locked_memory.h"
#include "tensorpack/utils/tensor.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

/// A copy in the memory of the host: a device may have no room for everything twice. That of a
/// tensor on a GPU is in page-locked memory, which goes back and forth several times as fast; as
/// long as that is not much at a time, because it is taken from all other programs. Such memory is
/// given to others, or back to the system, when the copy is let go, and no stream is asked whether
/// it still reads it: wait for what you copy from it (`non_blocking = false`).
at::Tensor host_copy(const at::Tensor& tensor);

/// Locks memory for copies of so many bytes ahead, beside what its owner does meanwhile: locking
/// takes longer than copying. While it lives, memory that copies let go is kept for the next; in
/// the end it is given back.
class [[nodiscard]] HostCopiesAhead {
 public:
  /// For host_copy(). Does nothing for copies of what is not on a GPU.
  HostCopiesAhead(c10::Device device, int64_t bytes);
  /// `memory` must outlive it.
  HostCopiesAhead(LockedMemory& memory, int64_t bytes);
  ~HostCopiesAhead();
  HostCopiesAhead(const HostCopiesAhead&) = delete;
  HostCopiesAhead& operator=(const HostCopiesAhead&) = delete;

  /// Has so many bytes more locked by the one that was made last on this thread, if there is one.
  static void want(int64_t bytes);

 private:
  void lock(const std::stop_token& stop);

  LockedMemory& memory_;
  HostCopiesAhead* before_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  int64_t wanted_;
  StoppableThread thread_;
};

}  // namespace tensorpack
