// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/host_copy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
constexpr int64_t kChunkBytes = int64_t{1} << 25;
constexpr int64_t kAlignment = 64;

// Page-locked memory. Locking takes long, so small tensors share a chunk, which lives as long as
// one of them.
class LockedMemory {
 public:
  // Undefined if there is none.
  at::Tensor take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    const int64_t taken = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    const auto storage = chunk_.lock();
    if (storage && used_ + taken <= static_cast<int64_t>(storage->nbytes())) {
      used_ += taken;
      return at::empty({0}, at::kByte).set_(at::Storage(storage), used_ - taken, {bytes}, {1});
    }
    at::Tensor chunk = new_chunk(std::max(taken, kChunkBytes));
    if (!chunk.defined()) return {};
    chunk_ = chunk.storage().getWeakStorageImpl();
    chunks_.push_back(chunk_);
    used_ = taken;
    return chunk.narrow(0, 0, bytes);
  }

 private:
  at::Tensor new_chunk(int64_t bytes) {
    if (has_failed_ || bytes_in_use() + bytes > kMostBytes) return {};
    try {
      return at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
    } catch (const c10::Error& error) {
      log::debug("No page-locked memory: {}", describe(error));
      has_failed_ = true;
      return {};
    }
  }

  int64_t bytes_in_use() {
    std::erase_if(chunks_, [](const WeakStorage& chunk) { return chunk.expired(); });
    int64_t bytes = 0;
    for (const WeakStorage& chunk : chunks_) {
      if (const auto storage = chunk.lock()) bytes += static_cast<int64_t>(storage->nbytes());
    }
    return bytes;
  }

  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  std::mutex mutex_;
  std::vector<WeakStorage> chunks_;
  WeakStorage chunk_{c10::intrusive_ptr<c10::StorageImpl>()};  // the newest
  int64_t used_ = 0;                                           // of it
  bool has_failed_ = false;
};

}  // namespace

at::Tensor host_copy(const at::Tensor& tensor) {
  const at::Tensor contents = tensor.detach();
  if (!contents.is_cuda()) return contents.clone();
  if (contents.layout() != at::kStrided || !contents.is_non_overlapping_and_dense()) {
    return contents.cpu();
  }
  static LockedMemory locked;
  const at::Tensor memory = locked.take(static_cast<int64_t>(contents.nbytes()));
  if (!memory.defined()) return contents.cpu();
  return memory.view(contents.scalar_type())
      .as_strided(contents.sizes(), contents.strides())
      .copy_(contents);
}

}  // namespace tensorpack
