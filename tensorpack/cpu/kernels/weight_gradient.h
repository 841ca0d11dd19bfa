// SPDX-License-Identifier: Apache-2.0
// The gradients of a convolution's weight and bias over images of one channel.
//
//   tensorpack::weight_gradient
//
// oneDNN lays channels along its vectors, and leaves them nearly empty in the first layer of a
// network for grey images. Here pixels of a row lie along them.
#pragma once

#include <array>
#include <tuple>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cpu {

/// True for filters of 3, 5 or 7 columns over one channel, where there is enough to gain. Sizes are
/// NCHW, and OIHW of the weight.
bool fits_weight_gradient(at::IntArrayRef grad, at::IntArrayRef weight);

/// The gradients of weight and bias of a convolution with stride 1. Both images are float; they are
/// made contiguous. Sums in one order, whatever the number of threads.
std::tuple<at::Tensor, at::Tensor> weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                                   at::IntArrayRef weight_size,
                                                   std::array<int64_t, 2> padding);

}  // namespace tensorpack::cpu
