// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/layer.h"

namespace tensorpack {

struct PoolingOptions {
  std::optional<Size2D> strides = {};  ///< the pool size
  Size2D padding = 0;
};

/// The largest value of every `pool_size` window of [N, C, H, W].
at::Tensor MaxPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      PoolingOptions options = {});

/// The mean of every `pool_size` window of [N, C, H, W].
at::Tensor AvgPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      PoolingOptions options = {});

/// The mean over height and width: [N, C, H, W] to [N, C].
at::Tensor GlobalAvgPooling(const std::string& name, const at::Tensor& input);

}  // namespace tensorpack
