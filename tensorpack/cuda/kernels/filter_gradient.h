// SPDX-License-Identifier: Apache-2.0
// Gradients of a convolution's filters over images of few channels.
//
//   tensorpack::filter_gradient
//
// Note [Gradients of filters]
// weight[k, c, r, s] is a sum over all places (n, y, x) of grad[n, k, y, x] times the image's value
// under the tap (c, r, s) there: a product of two matrices whose result is small and whose sum is
// long. A block takes tiles of places. It gathers their patches and gradients into shared memory,
// where the next tile's are under way while this one is multiplied; a thread owns 8 filters x 8
// taps in registers, so that a value read is used eight times, and shares the places of a tile with
// the other threads that own the same. Each block writes one partial result, and a second kernel
// adds those up: always in the same order, so that results repeat. Products and sums are in float.
// The gradient of the bias is one more tap, under which every value is one.
#pragma once

#include <tuple>
#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// A convolution of an image, by filters [K, C, R, S] whose gradient lies as `strides` say.
struct FilterGradient {
  std::vector<int64_t> size = {1, 1, 1, 1};
  std::vector<int64_t> strides = {1, 1, 1, 1};
  std::vector<int64_t> stride = {1, 1};
  std::vector<int64_t> padding = {0, 0};
  std::vector<int64_t> dilation = {1, 1};
  bool bias = false;  ///< whether the bias has a gradient, too
};

/// True for filters [K, C, R, S] that the kernel takes.
bool fits_filter_gradient(at::IntArrayRef size);

/// Of the filters and of the bias, undefined if that is not wanted; in the type that both `grad`
/// [N, K, Ho, Wo] and `image` [N, C, H, W] have. Both may lie anyhow.
std::tuple<at::Tensor, at::Tensor> filter_gradient(const at::Tensor& grad, const at::Tensor& image,
                                                   const FilterGradient& of,
                                                   const Launcher& launcher);

/// By libtorch's operators, on any device.
std::tuple<at::Tensor, at::Tensor> filter_gradient_unfused(const at::Tensor& grad,
                                                           const at::Tensor& image,
                                                           const FilterGradient& of);

}  // namespace tensorpack::cuda
