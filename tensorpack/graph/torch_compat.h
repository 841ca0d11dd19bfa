// SPDX-License-Identifier: Apache-2.0
// Where libtorch 1.13 and 2.x differ. Nowhere else is the version asked for.
#pragma once

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/version.h>

#include <optional>

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#include <c10/core/CachingDeviceAllocator.h>
#endif

namespace tensorpack {

/// Switches autocast of CPU operators on this thread.
inline void set_cpu_autocast(bool enabled) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  at::autocast::set_autocast_enabled(at::kCPU, enabled);
#else
  at::autocast::set_cpu_enabled(enabled);
#endif
}

/// Whether autocast of CPU operators is on, on this thread.
inline bool is_cpu_autocast() {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  return at::autocast::is_autocast_enabled(at::kCPU);
#else
  return at::autocast::is_cpu_enabled();
#endif
}

/// Switches autocast of CUDA operators to bfloat16 on this thread.
inline void set_cuda_autocast(bool enabled) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  at::autocast::set_autocast_dtype(at::kCUDA, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCUDA, enabled);
#else
  at::autocast::set_autocast_gpu_dtype(at::kBFloat16);
  at::autocast::set_enabled(enabled);
#endif
}

/// Attention of [N, heads, T, E] in one kernel; nullopt where libtorch has none.
inline std::optional<at::Tensor> fused_attention([[maybe_unused]] const at::Tensor& query,
                                                 [[maybe_unused]] const at::Tensor& key,
                                                 [[maybe_unused]] const at::Tensor& value,
                                                 [[maybe_unused]] double dropout,
                                                 [[maybe_unused]] bool causal) {
#if TORCH_VERSION_MAJOR >= 2
  if (query.is_cuda()) {
    return at::scaled_dot_product_attention(query, key, value, {}, dropout, causal);
  }
#endif
  return std::nullopt;
}

/// The most bytes that were allocated on a device at a time; 0 where libtorch does not tell.
inline int64_t peak_device_bytes([[maybe_unused]] c10::Device device) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
  if (device.is_cuda()) {
    constexpr size_t kAllPools = 0;
    const auto index = device.has_index() ? device.index() : c10::DeviceIndex{0};
    return c10::getDeviceAllocator(device.type())
        ->getDeviceStats(index)
        .allocated_bytes[kAllPools]
        .peak;
  }
#endif
  return 0;
}

}  // namespace tensorpack
