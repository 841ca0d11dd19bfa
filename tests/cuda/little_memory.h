// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDACachingAllocator.h>

namespace tensorpack::test {

/// While it lives, the process gets so many bytes of the device more and no others.
class [[nodiscard]] LittleMemory {
 public:
  explicit LittleMemory(size_t bytes) {
    c10::cuda::CUDACachingAllocator::emptyCache();
    const auto taken = c10::cuda::CUDACachingAllocator::getDeviceStats(0).reserved_bytes[0].current;
    const auto total = at::cuda::getCurrentDeviceProperties()->totalGlobalMem;
    c10::cuda::CUDACachingAllocator::setMemoryFraction(
        (static_cast<double>(taken) + static_cast<double>(bytes)) / static_cast<double>(total), 0);
  }
  ~LittleMemory() { c10::cuda::CUDACachingAllocator::setMemoryFraction(1, 0); }
  LittleMemory(const LittleMemory&) = delete;
  LittleMemory& operator=(const LittleMemory&) = delete;
};

}  // namespace tensorpack::test
