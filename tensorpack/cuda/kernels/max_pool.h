// SPDX-License-Identifier: Apache-2.0
// Max pooling in channels_last that remembers, in a byte, where in its window a maximum was.
//
//   tensorpack::max_pool           the maxima and their places
//   tensorpack::max_pool_backward  the gradient of the input
#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>
#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"

namespace tensorpack::cuda {

/// Height and width of each.
struct PoolWindow {
  std::vector<int64_t> kernel = {1, 1};
  std::vector<int64_t> stride = {1, 1};
  std::vector<int64_t> padding = {0, 0};

  /// A place in the window must fit into a byte.
  bool is_small() const { return kernel[0] * kernel[1] <= 255; }
  std::vector<int64_t> output_size(at::IntArrayRef input) const;
};

/// By kernels of ours: the maxima and a byte for the place of each.
std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& input, const PoolWindow& window,
                                            const Launcher& launcher);
at::Tensor max_pool_backward(const at::Tensor& grad, const at::Tensor& places,
                             at::IntArrayRef input_size, const PoolWindow& window,
                             const Launcher& launcher);

/// By libtorch's operators, on any device.
std::tuple<at::Tensor, at::Tensor> max_pool_unfused(const at::Tensor& input,
                                                    const PoolWindow& window);
at::Tensor max_pool_backward_unfused(const at::Tensor& grad, const at::Tensor& places,
                                     at::IntArrayRef input_size, const PoolWindow& window);

}  // namespace tensorpack::cuda
