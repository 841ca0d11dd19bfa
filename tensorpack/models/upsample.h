// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/models/layer.h"

namespace tensorpack {

struct FixedUnPoolingOptions {
  /// What one value becomes, [height, width]; when undefined, the value at the top left and zeros.
  at::Tensor unpool_mat = {};
};

/// The Kronecker product of every channel of [N, C, H, W] with a matrix of `shape`.
at::Tensor FixedUnPooling(const std::string& name, const at::Tensor& input, Size2D shape,
                          FixedUnPoolingOptions options = {});

/// Enlarges [N, C, H, W] by `factor`, with bilinear interpolation between pixel centres.
at::Tensor BilinearUpSample(const std::string& name, const at::Tensor& input, Size2D factor);

}  // namespace tensorpack
