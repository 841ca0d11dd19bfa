// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"
#include "tensorpack/models/regularize.h"

namespace tensorpack {

struct FullyConnectedOptions {
  std::optional<int64_t> units = {};                   ///< required
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
    return detail::tie_fields<T>(units, activation, use_bias, kernel_init, bias_init,
                                 kernel_regularizer, bias_regularizer, activity_regularizer);
  }
};

/// input x W^T + b on the input flattened to [N, features]. Variables `W` [units, features] and
/// `b`. An input [N, T, C] is flattened, too, with one warning: see Linear for each token by
/// itself.
at::Tensor FullyConnected(const std::string& name, const at::Tensor& input,
                          FullyConnectedOptions options);

}  // namespace tensorpack
