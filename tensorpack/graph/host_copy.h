// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tensorpack/graph/locked_memory.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {

/// A copy in the memory of the host: a device may have no room for everything twice. That of a
/// tensor on a GPU is in page-locked memory, which goes back and forth several times as fast; as
/// long as that is not much at a time, because it is taken from all other programs.
at::Tensor host_copy(const at::Tensor& tensor);

/// Locks memory for copies of so many bytes ahead, beside what its owner does meanwhile: locking
/// takes longer than copying. What no copy took is given back when it is destroyed.
class [[nodiscard]] HostCopiesAhead {
 public:
  /// For host_copy(). Does nothing for copies of what is not on a GPU.
  HostCopiesAhead(c10::Device device, int64_t bytes);
  /// `memory` must outlive it.
  HostCopiesAhead(LockedMemory& memory, int64_t bytes);
  ~HostCopiesAhead();
  HostCopiesAhead(const HostCopiesAhead&) = delete;
  HostCopiesAhead& operator=(const HostCopiesAhead&) = delete;

 private:
  LockedMemory& memory_;
  StoppableThread thread_;
};

}  // namespace tensorpack
