// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// So many bytes of the host's memory that a GPU reads and writes by itself. Undefined if there are
/// none. In cuda/; without CUDA there never are.
at::Tensor lock_memory(int64_t bytes);

/// How much of the host's memory may be locked at a time, which is taken from all other programs: a
/// sixteenth of it, but at least 2.5 GiB and at most 8 GiB.
int64_t most_locked_memory();

struct LockedMemoryOptions {
  /// Gives so many bytes of page-locked memory, undefined if there is none.
  std::function<at::Tensor(int64_t bytes)> lock = lock_memory;
  int64_t chunk_bytes = int64_t{1} << 25;
  int64_t most_bytes = most_locked_memory();
};

/// Page-locked memory of the host. Locking takes long, so small tensors share a chunk, which lives
/// as long as one of them. Several threads may take some.
class LockedMemory {
 public:
  explicit LockedMemory(LockedMemoryOptions options);

  int64_t chunk_bytes() const;

  /// A vector of bytes. Undefined if there is none.
  at::Tensor take(int64_t bytes);
  /// Locks one chunk more, to be taken later. False if there is none.
  bool lock_ahead();

  /// Chunks that nobody uses are kept from now on, to be taken again.
  void keep_unused();
  /// They are given back, once for every keep_unused().
  void forget_unused();

 private:
  struct Chunks;
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  at::Tensor next_chunk(int64_t bytes);

  std::shared_ptr<Chunks> chunks_;  // what was taken comes back to them
  std::mutex mutex_;
  WeakStorage chunk_{c10::intrusive_ptr<c10::StorageImpl>()};  // the newest
  int64_t used_ = 0;                                           // of it
};

}  // namespace tensorpack
