// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <tuple>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

/// What a training step does to the moving statistics of a BatchNorm.
enum class EmaUpdate {
  kInternal,  ///< the forward pass updates them
  kSkip,      ///< they stay: for a second pass over other data, as in GANs
};

struct BatchNormOptions {
  std::optional<double> momentum = {};  ///< 0.9: share of the old moving average that is kept
  std::optional<double> epsilon = {};   ///< 1e-5
  std::optional<bool> center = {};      ///< true: learn `beta`
  std::optional<bool> scale = {};       ///< true: learn `gamma`
  /// Statistics of the batch, or the moving ones; as the tower when empty. False in a training
  /// tower freezes the statistics, with one warning.
  std::optional<bool> training = {};
  std::optional<Activation> activation = {};   ///< none
  std::optional<EmaUpdate> ema_update = {};    ///< kInternal
  std::optional<Initializer> gamma_init = {};  ///< ones

  auto fields() {
    return std::tie(momentum, epsilon, center, scale, training, activation, ema_update, gamma_init);
  }
};

/// Batch normalisation of [N, C] or [N, C, H, W]. Variables `beta`, `gamma`, `mean/EMA`,
/// `variance/EMA`; the moving ones change in the main training tower alone.
at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions options = {});

/// BatchNorm under `<name>/bn`, then relu.
at::Tensor BNReLU(const std::string& name, const at::Tensor& input);

}  // namespace tensorpack
