// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"
#include "tensorpack/models/padding.h"
#include "tensorpack/models/regularize.h"

namespace tensorpack {

struct Conv2DTransposeOptions {
  std::optional<int64_t> filters = {};                 ///< required
  std::optional<Size2D> kernel_size = {};              ///< required
  std::optional<Size2D> strides = {};                  ///< 1
  std::optional<Padding> padding = {};                 ///< same
  std::optional<Activation> activation = {};           ///< none
  std::optional<bool> use_bias = {};                   ///< true
  std::optional<Initializer> kernel_init = {};         ///< init::he_normal()
  std::optional<Initializer> bias_init = {};           ///< zeros
  std::optional<Regularizer> kernel_regularizer = {};  ///< none
  std::optional<Regularizer> bias_regularizer = {};    ///< none
  /// Of the output, behind the activation; every call adds its own. None.
  std::optional<Regularizer> activity_regularizer = {};

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(filters, kernel_size, strides, padding, activation, use_bias,
                                 kernel_init, bias_init, kernel_regularizer, bias_regularizer,
                                 activity_regularizer);
  }
};

/// Transposed convolution over [N, C, H, W]. The output's height and width are input * stride for
/// SAME padding, input * stride + max(kernel - stride, 0) for VALID, and libtorch's
/// (input - 1) * stride + kernel - 2 * padding for an explicit one. Variables
/// `W` [C, filters, kh, kw] and `b` [filters].
at::Tensor Conv2DTranspose(const std::string& name, const at::Tensor& input,
                           Conv2DTransposeOptions options);

}  // namespace tensorpack
