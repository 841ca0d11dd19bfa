// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/locked_memory.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tensorpack/utils/host_memory.h"

namespace tensorpack {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

int64_t most_locked_memory() {
  constexpr int64_t kShare = 16, kAtLeast = int64_t{5} << 29, kAtMost = int64_t{8} << 30;
  return std::clamp(static_cast<int64_t>(host_memory()) / kShare, kAtLeast, kAtMost);
}

// All that is locked. Tensors are let go while it is open to others: they may be the last to use
// their chunk.
struct LockedMemory::Chunks {
  explicit Chunks(LockedMemoryOptions the_options) : options(std::move(the_options)) {}

  // Undefined if there is none.
  at::Tensor lock(int64_t bytes) {
    {
      const std::lock_guard guard(mutex);
      if (has_failed || locked + bytes > options.most_bytes) return {};
      locked += bytes;
    }
    at::Tensor chunk = options.lock(bytes);  // takes long
    if (chunk.defined()) return chunk;
    const std::lock_guard guard(mutex);
    locked -= bytes;
    has_failed = true;
    return {};
  }

  void unlock(at::Tensor chunk) {
    const int64_t bytes = chunk.numel();
    chunk.reset();
    const std::lock_guard guard(mutex);
    locked -= bytes;
  }

  // Of the common size; undefined if there is none.
  at::Tensor take_unused() {
    const std::lock_guard guard(mutex);
    if (unused.empty()) return {};
    at::Tensor chunk = std::move(unused.back());
    unused.pop_back();
    return chunk;
  }

  // True if it is kept.
  bool keep(const at::Tensor& chunk) {
    const std::lock_guard guard(mutex);
    if (keepers == 0 || chunk.numel() != options.chunk_bytes) return false;
    unused.push_back(chunk);
    return true;
  }

  void let_go(at::Tensor chunk) {
    if (!keep(chunk)) unlock(std::move(chunk));
  }

  void keep_unused() {
    const std::lock_guard guard(mutex);
    ++keepers;
  }

  void forget_unused() {
    std::vector<at::Tensor> forgotten;
    {
      const std::lock_guard guard(mutex);
      if (--keepers == 0) forgotten.swap(unused);
    }
    for (at::Tensor& chunk : forgotten) unlock(std::move(chunk));
  }

  const LockedMemoryOptions options;
  std::mutex mutex;
  std::vector<at::Tensor> unused;
  int keepers = 0;
  int64_t locked = 0;  // bytes
  bool has_failed = false;
};

LockedMemory::LockedMemory(LockedMemoryOptions options)
    : chunks_(std::make_shared<Chunks>(std::move(options))) {}

int64_t LockedMemory::chunk_bytes() const { return chunks_->options.chunk_bytes; }

at::Tensor LockedMemory::take(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto storage = chunk_.lock();
  if (storage && used_ + taken <= static_cast<int64_t>(storage->nbytes())) {
    used_ += taken;
    return at::empty({0}, at::kByte).set_(at::Storage(storage), used_ - taken, {bytes}, {1});
  }
  const at::Tensor chunk = next_chunk(std::max(taken, chunk_bytes()));
  if (!chunk.defined()) return {};
  chunk_ = chunk.storage().getWeakStorageImpl();
  used_ = taken;
  return chunk.narrow(0, 0, bytes);
}

bool LockedMemory::lock_ahead() {
  at::Tensor chunk = chunks_->lock(chunk_bytes());
  if (!chunk.defined()) return false;
  chunks_->let_go(std::move(chunk));
  return true;
}

void LockedMemory::keep_unused() { chunks_->keep_unused(); }

void LockedMemory::forget_unused() { chunks_->forget_unused(); }

// Comes back when nobody uses it any more.
at::Tensor LockedMemory::next_chunk(int64_t bytes) {
  at::Tensor chunk;
  if (bytes == chunk_bytes()) chunk = chunks_->take_unused();
  if (!chunk.defined()) chunk = chunks_->lock(bytes);
  if (!chunk.defined()) return {};
  void* const data = chunk.data_ptr();
  return at::from_blob(
      data, {bytes}, [chunks = chunks_, chunk](void*) { chunks->let_go(chunk); }, at::kByte);
}

}  // namespace tensorpack
