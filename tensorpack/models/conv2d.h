// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

/// How a convolution or a pooling treats the border.
struct Padding {
  enum class Kind { kSame, kValid, kExplicit };
  Kind kind = Kind::kValid;
  Size2D amount = 0;

  /// Output size is input size / stride, rounded up; odd amounts go to the bottom and the right.
  static Padding same() { return {Kind::kSame, 0}; }
  static Padding valid() { return {Kind::kValid, 0}; }
  /// The same amount on both sides.
  static Padding of(Size2D amount) { return {Kind::kExplicit, amount}; }
};

struct Conv2DOptions {
  std::optional<int64_t> filters = {};          ///< required
  std::optional<Size2D> kernel_size = {};       ///< required
  std::optional<Size2D> strides = {};           ///< 1
  std::optional<Padding> padding = {};          ///< same
  std::optional<Activation> activation = {};    ///< none
  std::optional<bool> use_bias = {};            ///< true
  std::optional<Size2D> dilation = {};          ///< 1
  std::optional<int64_t> groups = {};           ///< 1
  std::optional<Initializer> kernel_init = {};  ///< init::he_normal()
  std::optional<Initializer> bias_init = {};    ///< zeros

  auto fields() {
    return std::tie(filters, kernel_size, strides, padding, activation, use_bias, dilation, groups,
                    kernel_init, bias_init);
  }
};

/// Convolution over [N, C, H, W]. Variables `W` [filters, C / groups, kh, kw] and `b` [filters].
at::Tensor Conv2D(const std::string& name, const at::Tensor& input, Conv2DOptions options);

}  // namespace tensorpack
