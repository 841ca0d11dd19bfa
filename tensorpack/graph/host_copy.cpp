// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/host_copy.h"

#include <ATen/ATen.h>

#include <atomic>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

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

thread_local HostCopiesAhead* newest = nullptr;
std::atomic<int> alive = 0;

LockedMemory& locked_memory() {
  static LockedMemory memory({.lock = lock_memory});
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

HostCopiesAhead::HostCopiesAhead(c10::Device device, int64_t bytes)
    : HostCopiesAhead(locked_memory(), device.is_cuda() ? bytes : 0) {}

HostCopiesAhead::HostCopiesAhead(LockedMemory& memory, int64_t bytes)
    : memory_(memory), before_(std::exchange(newest, this)), wanted_(bytes) {
  ++alive;
  if (bytes == 0) return;
  thread_ =
      StoppableThread("lock memory", [this](const std::stop_token& stop) { this->lock(stop); });
}

HostCopiesAhead::~HostCopiesAhead() {
  thread_.request_stop();
  thread_.join();
  memory_.forget_ahead();
  newest = before_;
  --alive;
}

void HostCopiesAhead::want(int64_t bytes) {
  if (newest == nullptr) return;
  const std::lock_guard lock(newest->mutex_);
  newest->wanted_ += bytes;
  newest->changed_.notify_one();
}

bool HostCopiesAhead::is_any() { return alive > 0; }

void HostCopiesAhead::lock(const std::stop_token& stop) {
  for (int64_t locked = 0; !stop.stop_requested(); locked += memory_.chunk_bytes()) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return locked < wanted_; })) return;
    }
    if (!memory_.lock_ahead()) return;
  }
}

}  // namespace tensorpack
