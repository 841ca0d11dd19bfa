// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/host_copy.h"

#include <ATen/ATen.h>

#include <utility>

namespace tensorpack {
namespace {

thread_local HostCopiesAhead* newest = nullptr;

LockedMemory& locked_memory() {
  static LockedMemory memory({});
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
  memory_.keep_unused();
  if (bytes == 0) return;
  thread_ =
      StoppableThread("lock memory", [this](const std::stop_token& stop) { this->lock(stop); });
}

HostCopiesAhead::~HostCopiesAhead() {
  thread_.request_stop();
  thread_.join();
  memory_.forget_unused();
  newest = before_;
}

void HostCopiesAhead::want(int64_t bytes) {
  if (newest == nullptr) return;
  const std::lock_guard lock(newest->mutex_);
  newest->wanted_ += bytes;
  newest->changed_.notify_one();
}

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
