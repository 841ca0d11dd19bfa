// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

struct BatchNormOptions {
  std::optional<double> momentum = {};  ///< 0.9: share of the old moving average that is kept
  std::optional<double> epsilon = {};   ///< 1e-5
  std::optional<bool> center = {};      ///< true: learn `beta`
  std::optional<bool> scale = {};       ///< true: learn `gamma`
  /// Statistics of the batch, or the moving ones; as the tower when empty.
  std::optional<bool> training = {};
  std::optional<Activation> activation = {};  ///< none

  auto fields() { return std::tie(momentum, epsilon, center, scale, training, activation); }
};

/// Batch normalisation of [N, C] or [N, C, H, W]. Variables `beta`, `gamma`, `mean/EMA`,
/// `variance/EMA`; the moving ones change in the main training tower alone.
at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions options = {});

/// BatchNorm under `<name>/bn`, then relu.
at::Tensor BNReLU(const std::string& name, const at::Tensor& input);

}  // namespace tensorpack
