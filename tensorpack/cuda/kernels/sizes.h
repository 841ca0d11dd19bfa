// SPDX-License-Identifier: Apache-2.0
// What kernels' plans ask of numbers and of memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tensorpack::cuda {

/// How many of size `b` hold `a`.
constexpr int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Whether a thread may load `width` elements of the tensor at a time.
inline bool is_aligned(const at::Tensor& tensor, int width) {
  const auto bytes = static_cast<uintptr_t>(width) * tensor.element_size();
  return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % bytes == 0;
}

}  // namespace tensorpack::cuda
