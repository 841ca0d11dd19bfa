// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"
#include "tensorpack/models/padding.h"
#include "tensorpack/models/regularize.h"

namespace tensorpack {

struct Conv2DOptions {
  std::optional<int64_t> filters = {};                 ///< required
  std::optional<Size2D> kernel_size = {};              ///< required
  std::optional<Size2D> strides = {};                  ///< 1
  std::optional<Padding> padding = {};                 ///< same
  std::optional<Activation> activation = {};           ///< none
  std::optional<bool> use_bias = {};                   ///< true
  std::optional<Size2D> dilation = {};                 ///< 1
  std::optional<int64_t> groups = {};                  ///< 1
  std::optional<Initializer> kernel_init = {};         ///< init::he_normal()
  std::optional<Initializer> bias_init = {};           ///< zeros
  std::optional<Regularizer> kernel_regularizer = {};  ///< none
  std::optional<Regularizer> bias_regularizer = {};    ///< none
  /// Of the output, behind the activation; every call adds its own. None.
  std::optional<Regularizer> activity_regularizer = {};

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(filters, kernel_size, strides, padding, activation, use_bias,
                                 dilation, groups, kernel_init, bias_init, kernel_regularizer,
                                 bias_regularizer, activity_regularizer);
  }
};

/// Convolution over [N, C, H, W]. Variables `W` [filters, C / groups, kh, kw] and `b` [filters].
at::Tensor Conv2D(const std::string& name, const at::Tensor& input, Conv2DOptions options);

struct DepthwiseConv2DOptions {
  std::optional<Size2D> kernel_size = {};              ///< required
  std::optional<Size2D> strides = {};                  ///< 1
  std::optional<Padding> padding = {};                 ///< same
  std::optional<Activation> activation = {};           ///< none
  std::optional<int64_t> channel_multiplier = {};      ///< 1: filters per input channel
  std::optional<bool> use_bias = {};                   ///< true
  std::optional<Size2D> dilation = {};                 ///< 1
  std::optional<Initializer> kernel_init = {};         ///< init::he_normal()
  std::optional<Initializer> bias_init = {};           ///< zeros
  std::optional<Regularizer> kernel_regularizer = {};  ///< none
  std::optional<Regularizer> bias_regularizer = {};    ///< none
  /// Of the output, behind the activation; every call adds its own. None.
  std::optional<Regularizer> activity_regularizer = {};

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(kernel_size, strides, padding, activation, channel_multiplier,
                                 use_bias, dilation, kernel_init, bias_init, kernel_regularizer,
                                 bias_regularizer, activity_regularizer);
  }
};

/// Convolves every channel of [N, C, H, W] with filters of its own. Variables
/// `W` [C * multiplier, 1, kh, kw] and `b` [C * multiplier].
at::Tensor DepthwiseConv2D(const std::string& name, const at::Tensor& input,
                           DepthwiseConv2DOptions options);

}  // namespace tensorpack
