// SPDX-License-Identifier: Apache-2.0
// What kernels' plans ask of numbers and of memory.
#pragma once

#include <c10/util/Optional.h>

#include <cstdint>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// How many of size `b` hold `a`.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Whether a thread may load `width` elements of the tensor at a time.
inline bool is_aligned(const at::Tensor& tensor, int width) {
  const auto bytes = static_cast<uintptr_t>(width) * tensor.element_size();
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % bytes == 0;
}

/// Where the tensor lies; nullptr if there is none.
template <typename T = void>
T* data_of(const at::Tensor& tensor) {
  return tensor.defined() ? static_cast<T*>(tensor.data_ptr()) : nullptr;
}
template <typename T = void>
T* data_of(const c10::optional<at::Tensor>& tensor) {
  return tensor ? data_of<T>(*tensor) : nullptr;
}

inline at::Tensor in_channels_last(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace tensorpack::cuda
