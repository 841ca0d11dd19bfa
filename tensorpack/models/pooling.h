// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"
#include "tensorpack/models/padding.h"

namespace tensorpack {

struct MaxPoolingOptions {
  std::optional<Size2D> strides = {};   ///< the pool size
  std::optional<Padding> padding = {};  ///< valid

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(strides, padding);
  }
};

/// The largest value of every `pool_size` window of [N, C, H, W].
at::Tensor MaxPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      MaxPoolingOptions options = {});

struct AvgPoolingOptions {
  std::optional<Size2D> strides = {};   ///< the pool size
  std::optional<Padding> padding = {};  ///< valid
  /// Whether the zeros around the image count in the mean. Those of Padding::of() do unless this
  /// says otherwise, as in libtorch; those of Padding::same() do not, as in TensorFlow.
  std::optional<bool> count_padding = {};

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(strides, padding, count_padding);
  }
};

/// The mean of every `pool_size` window of [N, C, H, W].
at::Tensor AvgPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      AvgPoolingOptions options = {});

/// The mean over height and width: [N, C, H, W] to [N, C].
at::Tensor GlobalAvgPooling(const std::string& name, const at::Tensor& input);

}  // namespace tensorpack
