// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/host_copy.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

constexpr int64_t kMostBytes = int64_t{5} << 28;
constexpr int64_t kChunkBytes = int64_t{1} << 25;
constexpr int64_t kAlignment = 64;

at::Tensor lock_memory(int64_t bytes) {
  const Timer timer;
  try {
    at::Tensor memory = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(true));
    log::debug("Locking {} of memory took {:.3f} s.",
               humanize_bytes(static_cast<std::uint64_t>(bytes)), timer.seconds());
    return memory;
  } catch (const c10::Error& error) {
    log::debug("No page-locked memory: {}", describe(error));
    return {};
  }
}

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
    const at::Tensor chunk = next_chunk(std::max(taken, kChunkBytes));
    if (!chunk.defined()) return {};
    chunk_ = chunk.storage().getWeakStorageImpl();
    used_ = taken;
    return chunk.narrow(0, 0, bytes);
  }

  // One chunk more, to be taken later. False if there is none.
  bool lock_ahead() {
    {
      const std::lock_guard lock(mutex_);
      if (!may_lock(kChunkBytes)) return false;
    }
    const at::Tensor chunk = lock_memory(kChunkBytes);  // others take what is there meanwhile
    const std::lock_guard lock(mutex_);
    if (!remember(chunk)) return false;
    ahead_.push_back(chunk);
    return true;
  }

  void forget_ahead() {
    const std::lock_guard lock(mutex_);
    ahead_.clear();
  }

 private:
  at::Tensor next_chunk(int64_t bytes) {
    if (bytes == kChunkBytes && !ahead_.empty()) {
      const at::Tensor chunk = ahead_.back();
      ahead_.pop_back();
      return chunk;
    }
    if (!may_lock(bytes)) return {};
    const at::Tensor chunk = lock_memory(bytes);
    remember(chunk);
    return chunk;
  }

  bool may_lock(int64_t bytes) {
    std::erase_if(chunks_, [](const WeakStorage& chunk) { return chunk.expired(); });
    for (const WeakStorage& chunk : chunks_) {
      if (const auto storage = chunk.lock()) bytes += static_cast<int64_t>(storage->nbytes());
    }
    return !has_failed_ && bytes <= kMostBytes;
  }

  bool remember(const at::Tensor& chunk) {
    has_failed_ |= !chunk.defined();
    if (chunk.defined()) chunks_.push_back(chunk.storage().getWeakStorageImpl());
    return chunk.defined();
  }

  using WeakStorage = c10::weak_intrusive_ptr<c10::StorageImpl>;

  std::mutex mutex_;
  std::vector<WeakStorage> chunks_;  // all that are in use
  std::vector<at::Tensor> ahead_;    // of them, those that nobody took yet
  WeakStorage chunk_{c10::intrusive_ptr<c10::StorageImpl>()};  // the newest
  int64_t used_ = 0;                                           // of it
  bool has_failed_ = false;
};

LockedMemory& locked_memory() {
  static LockedMemory memory;
  return memory;
}

}  // namespace

at::Tensor host_copy(const at::Tensor& tensor) {
  const at::Tensor contents = tensor.detach();
  if (!contents.is_cuda()) return contents.clone();
  if (contents.layout() != at::kStrided || !contents.is_non_overlapping_and_dense()) {
    return contents.cpu();
  }
  const at::Tensor memory = locked_memory().take(static_cast<int64_t>(contents.nbytes()));
  if (!memory.defined()) return contents.cpu();
  return memory.view(contents.scalar_type())
      .as_strided(contents.sizes(), contents.strides())
      .copy_(contents);
}

HostCopiesAhead::HostCopiesAhead(c10::Device device, int64_t bytes) {
  if (!device.is_cuda()) return;
  thread_ = std::thread([bytes] {
    for (int64_t locked = 0; locked < bytes && locked_memory().lock_ahead();) locked += kChunkBytes;
  });
}

HostCopiesAhead::~HostCopiesAhead() {
  if (thread_.joinable()) thread_.join();
  locked_memory().forget_ahead();
}

}  // namespace tensorpack
