// SPDX-License-Identifier: Apache-2.0
// libtorch's convolutions, for what kernels of ours do not do.
#pragma once

#include <array>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cpu {

/// Of height and width.
using Padding = std::array<int64_t, 2>;

/// Bias may be undefined.
at::Tensor plain_convolution(const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, const Padding& padding);

/// The gradients of an input and of filters of these sizes.
at::Tensor plain_input_gradient(const at::Tensor& grad, const at::Tensor& weight,
                                at::IntArrayRef input_size, const Padding& padding);
at::Tensor plain_weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                 at::IntArrayRef weight_size, const Padding& padding);

}  // namespace tensorpack::cpu
