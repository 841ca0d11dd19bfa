// SPDX-License-Identifier: Apache-2.0
// Where libtorch 1.13 and 2.x differ. Nowhere else is the version asked for.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/core/Event.h>
#include <torch/version.h>

#include <thread>

#define TENSORPACK_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||             \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace tensorpack {

/// Switches autocast of the operators of one kind of device on this thread.
inline void set_autocast(c10::DeviceType device, bool enabled, c10::ScalarType dtype) {
#if TENSORPACK_TORCH_AT_LEAST(2, 4)
  at::autocast::set_autocast_dtype(device, dtype);
  at::autocast::set_autocast_enabled(device, enabled);
#else
  if (device == c10::kCUDA) {
    at::autocast::set_autocast_gpu_dtype(dtype);
    at::autocast::set_enabled(enabled);
  } else {
    at::autocast::set_autocast_cpu_dtype(dtype);
    at::autocast::set_cpu_enabled(enabled);
  }
#endif
}

/// Waits on this thread until the work before the event is done.
inline void wait_for(const c10::Event& event) {
#if TENSORPACK_TORCH_AT_LEAST(2, 4)
  event.synchronize();
#else
  while (!event.query()) std::this_thread::yield();
#endif
}

}  // namespace tensorpack

#undef TENSORPACK_TORCH_AT_LEAST
