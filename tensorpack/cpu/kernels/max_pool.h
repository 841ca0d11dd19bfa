// SPDX-License-Identifier: Apache-2.0
// Max pooling of squares of two by two pixels, after a relu or not.
//
//   tensorpack::pool_squares           the maxima and their places
//   tensorpack::pool_squares_backward  the gradient of the input
//
// Note [Pooling squares]
// For contiguous images libtorch looks at one pixel at a time, keeps an index of eight bytes, and
// clears the gradient before it writes a quarter of it. Here eight squares are looked at together,
// a byte tells where in its square a maximum was, and all four gradients are written at once. relu
// and maximum may change places: the relu of a maximum is the maximum of relus. A maximum that relu
// makes zero has no place, so that backward needs neither relu's output nor a pass over it. Results
// equal those of libtorch's operators, but for the sign of zeros.
#pragma once

#include <tuple>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cpu {

/// The maxima and a byte for the place of each. The input is float and contiguous, NCHW; so are the
/// results.
std::tuple<at::Tensor, at::Tensor> pool_squares(const at::Tensor& input, bool relu);

/// The gradient of an input of this size.
at::Tensor pool_squares_backward(const at::Tensor& grad, const at::Tensor& places,
                                 at::IntArrayRef input_size);

}  // namespace tensorpack::cpu
