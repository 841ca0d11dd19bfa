// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/locked_memory.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tensorpack {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

at::Tensor LockedMemory::take(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  const auto storage = chunk_.lock();
  if (storage && used_ + taken <= static_cast<int64_t>(storage->nbytes())) {
    used_ += taken;
    return at::empty({0}, at::kByte).set_(at::Storage(storage), used_ - taken, {bytes}, {1});
  }
  const at::Tensor chunk = next_chunk(std::max(taken, options_.chunk_bytes));
  if (!chunk.defined()) return {};
  chunk_ = chunk.storage().getWeakStorageImpl();
  used_ = taken;
  return chunk.narrow(0, 0, bytes);
}

bool LockedMemory::lock_ahead() {
  {
    const std::lock_guard lock(mutex_);
    if (!may_lock(options_.chunk_bytes)) return false;
  }
  const at::Tensor chunk = options_.lock(options_.chunk_bytes);  // others take what there is
  const std::lock_guard lock(mutex_);
  if (!remember(chunk)) return false;
  ahead_.push_back(chunk);
  return true;
}

void LockedMemory::forget_ahead() {
  const std::lock_guard lock(mutex_);
  ahead_.clear();
}

at::Tensor LockedMemory::next_chunk(int64_t bytes) {
  if (bytes == options_.chunk_bytes && !ahead_.empty()) {
    const at::Tensor chunk = ahead_.back();
    ahead_.pop_back();
    return chunk;
  }
  if (!may_lock(bytes)) return {};
  const at::Tensor chunk = options_.lock(bytes);
  remember(chunk);
  return chunk;
}

bool LockedMemory::may_lock(int64_t bytes) {
  std::erase_if(chunks_, [](const WeakStorage& chunk) { return chunk.expired(); });
  for (const WeakStorage& chunk : chunks_) {
    if (const auto storage = chunk.lock()) bytes += static_cast<int64_t>(storage->nbytes());
  }
  return !has_failed_ && bytes <= options_.most_bytes;
}

bool LockedMemory::remember(const at::Tensor& chunk) {
  has_failed_ |= !chunk.defined();
  if (chunk.defined()) chunks_.push_back(chunk.storage().getWeakStorageImpl());
  return chunk.defined();
}

}  // namespace tensorpack
