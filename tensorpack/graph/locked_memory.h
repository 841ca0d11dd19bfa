// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace tensorpack {

struct LockedMemoryOptions {
  /// Gives so many bytes of page-locked memory, undefined if there is none.
  std::function<at::Tensor(int64_t bytes)> lock = {};
  int64_t chunk_bytes = int64_t{1} << 25;
  int64_t most_bytes = int64_t{5} << 29;  ///< in use at a time: it is taken from all other programs
};

/// Page-locked memory of the host. Locking takes long, so small tensors share a chunk, which lives
/// as long as one of them. Several threads may take some.
class LockedMemory {
 public:
  explicit LockedMemory(LockedMemoryOptions options) : options_(std::move(options)) {}

  int64_t chunk_bytes() const { return options_.chunk_bytes; }

  /// A vector of bytes. Undefined if there is none.
  at::Tensor take(int64_t bytes);
  /// Locks one chunk more, to be taken later. False if there is none.
  bool lock_ahead();
  /// Gives back what was locked ahead and nobody took.
  void forget_ahead();

 private:
  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  at::Tensor next_chunk(int64_t bytes);
  bool may_lock(int64_t bytes);
  bool remember(const at::Tensor& chunk);

  const LockedMemoryOptions options_;
  std::mutex mutex_;
  std::vector<WeakStorage> chunks_;  // all that are in use
  std::vector<at::Tensor> ahead_;    // of them, those that nobody took yet
  WeakStorage chunk_{c10::intrusive_ptr<c10::StorageImpl>()};  // the newest
  int64_t used_ = 0;                                           // of it
  bool has_failed_ = false;
};

}  // namespace tensorpack
