// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/device_memory.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace tensorpack {
namespace {

// Calls `visit` for every device. Those that nobody has used are left so: a context takes memory.
template <typename Visit>
void for_each_device(const Visit& visit) {
  const auto count = c10::cuda::device_count();
  for (c10::DeviceIndex device = 0; device < count; ++device) {
    const bool is_used = at::detail::getCUDAHooks().hasPrimaryContext(device);
    if (is_used) at::empty({0}, c10::Device(c10::kCUDA, device));  // so that it has an allocator
    visit(device, is_used);
  }
}

}  // namespace

std::vector<int64_t> peak_device_memory() {
  constexpr size_t kAll = 0;  // of large and small blocks together
  std::vector<int64_t> peaks;
  for_each_device([&](c10::DeviceIndex device, bool is_used) {
    namespace allocator = c10::cuda::CUDACachingAllocator;
    peaks.push_back(is_used ? allocator::getDeviceStats(device).allocated_bytes[kAll].peak : 0);
  });
  return peaks;
}

void reset_peak_device_memory() {
  for_each_device([](c10::DeviceIndex device, bool is_used) {
    if (is_used) c10::cuda::CUDACachingAllocator::resetPeakStats(device);
  });
}

}  // namespace tensorpack
