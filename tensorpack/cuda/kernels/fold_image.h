// SPDX-License-Identifier: Apache-2.0
// Convolutions of stride 2 over images of few channels.
//
//   tensorpack::fold_image              2x2 places of an image as the channels of one
//   tensorpack::folded_convolution      of such an image, with the weights as they were
//   tensorpack::folded_weight_gradient  the gradient of these weights
//
// Note [Folded images]
// Kernels for tensor cores want channels by the eight, and an image has three: cuDNN pads it, and
// most of what it multiplies are zeros. With 2x2 places as one of 12 channels, a convolution of
// stride 2 becomes one of stride 1 whose filters have a quarter of the places, and of the products
// are few more than there were. The image is folded once, for both passes.
#pragma once

#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// How an image [N, C, H, W] is folded for a convolution of stride 2.
struct ImageFold {
  std::vector<int64_t> padding = {0, 0};  ///< above and to the left, in places of the image
  std::vector<int64_t> size = {1, 1};     ///< of the folded image
  int64_t channels = 4;                   ///< at least 4 C; the rest are zeros

  /// For filters and a padding of the convolution, and the size that it gives.
  static ImageFold of(const at::IntArrayRef& weight, const std::vector<int64_t>& padding,
                      const at::IntArrayRef& output, c10::ScalarType type);
};

/// In channels_last.
at::Tensor fold_image(const at::Tensor& image, const ImageFold& fold, const Launcher& launcher);
at::Tensor fold_image_unfused(const at::Tensor& image, const ImageFold& fold);

at::Tensor folded_convolution(const at::Tensor& folded, const at::Tensor& weight);
at::Tensor folded_weight_gradient(const at::Tensor& grad, const at::Tensor& folded,
                                  const at::Tensor& weight);

}  // namespace tensorpack::cuda
