// SPDX-License-Identifier: Apache-2.0
// Convolutions of 3x3 filters with a quarter of the multiplications.
//
//   tensorpack::winograd           the convolution
//   tensorpack::winograd_backward  its gradients
//
// Note [Winograd]
// Tiles of 4x4 outputs are computed from tiles of 6x6 inputs (Winograd's F(4x4, 3x3), with the
// points 0, 1, -1, 2, -2 and infinity). Inputs and filters are transformed to 36 numbers each;
// there a convolution is 36 products of matrices, over tiles, input channels and output channels.
// The gradient of the input is the convolution of the output's gradient with the filters turned
// round; that of the filters is what the transposed transforms make of 36 other products. Every
// number is summed in one order, whatever the number of threads. It rounds a few times more
// coarsely than a sum of products does: see the benchmarks' results. Infinities and NaN would reach
// all of a tile: where a result has some, libtorch's kernel makes it anew.
#pragma once

#include "tensorpack/cpu/kernels/plain_convolution.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cpu {

/// True if channels fill vectors and tiles are worth their transforms. Sizes are those of the
/// convolution: NCHW, and filters as OIHW.
bool fits_winograd(at::IntArrayRef input, at::IntArrayRef weight, const Padding& padding);

/// For what fits. Input and weight in channels_last, which the result is too; bias may be
/// undefined.
at::Tensor winograd(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    const Padding& padding);

/// The gradients of an input of this size, and of 3x3 filters.
at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight,
                                   at::IntArrayRef input_size, const Padding& padding);
at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                    const Padding& padding);

}  // namespace tensorpack::cpu
