// SPDX-License-Identifier: Apache-2.0
// Where libtorch 1.13 and 2.x differ. Nowhere else is the version asked for.
#pragma once

#include <ATen/autocast_mode.h>
#include <torch/version.h>

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

}  // namespace tensorpack
