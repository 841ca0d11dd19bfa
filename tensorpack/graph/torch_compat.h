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

}  // namespace tensorpack
