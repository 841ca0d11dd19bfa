// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"
#include "tensorpack/models/padding.h"
#include "tensorpack/models/regularize.h"

namespace tensorpack {

struct Conv1DOptions {
  std::optional<int64_t> filters = {};                 ///< required
  std::optional<int64_t> kernel_size = {};             ///< required
  std::optional<int64_t> strides = {};                 ///< 1
  std::optional<Padding> padding = {};                 ///< same; of Padding::of() the width counts
  std::optional<Activation> activation = {};           ///< none
  std::optional<bool> use_bias = {};                   ///< true
  std::optional<int64_t> dilation = {};                ///< 1
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

/// Convolution over [N, C, L]. Variables `W` [filters, C / groups, k] and `b` [filters].
at::Tensor Conv1D(const std::string& name, const at::Tensor& input, Conv1DOptions options);

}  // namespace tensorpack
