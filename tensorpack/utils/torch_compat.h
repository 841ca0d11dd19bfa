// SPDX-License-Identifier: Apache-2.0
// Where libtorch 1.13 and 2.x differ. Nowhere else is the version asked for.
#pragma once

#ifdef __clang__
#include <ATen/core/ivalue.h>  // as in tensorpack.h
#endif
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/Event.h>
#include <torch/version.h>

#include <optional>
#include <string>
#include <thread>

#define TENSORPACK_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) ||             \
   (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if TENSORPACK_TORCH_AT_LEAST(2, 9)
#include <c10/core/CachingDeviceAllocator.h>
#endif

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

/// Waits on this thread until the work before the event is done. See wait_for_device.h.
inline void synchronize(const c10::Event& event) {
#if TENSORPACK_TORCH_AT_LEAST(2, 4)
  event.synchronize();
#else
  while (!event.query()) std::this_thread::yield();
#endif
}

/// Bytes that c10d's TCPStore answers with one zero byte: whether it has all of no keys. Empty
/// where its protocol is not known.
inline std::string tcp_store_question() {
  const std::string no_keys(sizeof(uint64_t), '\0');
#if TENSORPACK_TORCH_AT_LEAST(2, 2)
  constexpr char kValidateAndCheck[] = {0, '\xce', '\xf7', '\x85', '\x3c', 5};
  return std::string(kValidateAndCheck, sizeof(kValidateAndCheck)) + no_keys;
#elif TENSORPACK_TORCH_AT_LEAST(2, 1)
  return "";
#else
  constexpr char kCheck = 4;
  return kCheck + no_keys;
#endif
}

/// Attention of [N, heads, T, E] in one kernel; nullopt where libtorch has none.
inline std::optional<at::Tensor> fused_attention([[maybe_unused]] const at::Tensor& query,
                                                 [[maybe_unused]] const at::Tensor& key,
                                                 [[maybe_unused]] const at::Tensor& value,
                                                 [[maybe_unused]] double dropout,
                                                 [[maybe_unused]] bool causal) {
#if TENSORPACK_TORCH_AT_LEAST(2, 0)
  if (query.is_cuda()) {
    return at::scaled_dot_product_attention(query, key, value, {}, dropout, causal);
  }
#endif
  return std::nullopt;
}

/// Copies each source to the target at the same place, on a GPU with few kernels.
inline void copy_together(at::TensorList targets, at::TensorList sources) {
#if TENSORPACK_TORCH_AT_LEAST(2, 1)
  at::_foreach_copy_(targets, sources);
#else
  for (size_t i = 0; i < targets.size(); ++i) targets[i].copy_(sources[i]);
#endif
}

/// While it lives, a backward pass runs on the thread that asks for it, for a GPU, too.
class [[nodiscard]] BackwardOnThisThread {
#if TENSORPACK_TORCH_AT_LEAST(2, 0)
 public:
  BackwardOnThisThread() { c10::AutogradState::get_tls_state().set_multithreading_enabled(false); }
  ~BackwardOnThisThread() {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(before_);
  }
  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  bool before_ = c10::AutogradState::get_tls_state().get_multithreading_enabled();
#else
 public:
  BackwardOnThisThread() {}
#endif
};

/// Whether generators of the device can share one state, as captured work needs it.
inline bool can_share_state([[maybe_unused]] const at::Generator& generator) {
#if TENSORPACK_TORCH_AT_LEAST(2, 4)
  return generator.device().is_cuda();
#else
  return false;
#endif
}

/// Makes `generator` draw from the state of `other`, and returns a handle to the state it had.
inline at::Generator share_state([[maybe_unused]] at::Generator& generator,
                                 [[maybe_unused]] const at::Generator& other) {
#if TENSORPACK_TORCH_AT_LEAST(2, 4)
  at::Generator before = generator.graphsafe_get_state();
  generator.graphsafe_set_state(other);
  return before;
#else
  return {};
#endif
}

/// Memory of a device that this process has, in bytes.
struct DeviceMemory {
  int64_t peak_allocated = 0;  ///< the most that was in use at a time
  int64_t held = 0;            ///< taken from the device now, in use or not
};

/// Zeros where libtorch does not tell.
inline DeviceMemory device_memory([[maybe_unused]] c10::Device device) {
#if TENSORPACK_TORCH_AT_LEAST(2, 9)
  if (device.is_cuda()) {
    constexpr size_t kAllPools = 0;
    const auto index = device.has_index() ? device.index() : c10::DeviceIndex{0};
    const auto stats = c10::getDeviceAllocator(device.type())->getDeviceStats(index);
    return {stats.allocated_bytes[kAllPools].peak, stats.reserved_bytes[kAllPools].current};
  }
#endif
  return {};
}

}  // namespace tensorpack

#undef TENSORPACK_TORCH_AT_LEAST
