// SPDX-License-Identifier: Apache-2.0
// Max pooling in channels_last that remembers, in a byte, where in its window a maximum was.
//
//   tensorpack::max_pool           the maxima and their places
//   tensorpack::max_pool_backward  the gradient of the input
#pragma once

#include <tuple>
#include <vector>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// Height and width of each.
struct PoolWindow {
  std::vector<int64_t> kernel = {1, 1};
  std::vector<int64_t> stride = {1, 1};
  std::vector<int64_t> padding = {0, 0};

  /// A place in the window must fit into a byte.
  bool is_small() const { return kernel[0] * kernel[1] <= 255; }
  std::vector<int64_t> output_size(at::IntArrayRef input) const;
  /// Of an image of that size: pieces of a few places that are part of the same windows.
  int64_t tiles(at::IntArrayRef input) const;
};

/// Device code: the sizes of images and windows.
std::string pool_constants(const PoolWindow& window, at::IntArrayRef input, at::IntArrayRef output);
/// Device code, after those and column_head(): Tile, a place of which has_place(), and whose
/// add_windows() adds up what the windows that took a place give to it.
std::string pool_tiles();

/// From places in windows to those in images of that width, and back. By libtorch's operators.
at::Tensor indices_of(const at::Tensor& places, int64_t width, const PoolWindow& window);
at::Tensor places_of(const at::Tensor& indices, int64_t width, const PoolWindow& window);

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
