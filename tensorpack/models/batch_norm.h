// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
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

/// Averages a tensor over the towers or processes that train together, each counted alike, and
/// passes gradients back to all of them. Called once for each layer and run, in the scope of the
/// layer: VariableScope::current_path() tells calls apart where they have to be matched.
using CrossTowerAverage = std::function<at::Tensor(const at::Tensor&)>;

struct BatchNormOptions {
  std::optional<double> momentum = {};  ///< 0.9: share of the old moving average that is kept
  std::optional<double> epsilon = {};   ///< 1e-5
  std::optional<bool> center = {};      ///< true: learn `beta`
  std::optional<bool> scale = {};       ///< true: learn `gamma`
  /// Statistics of the batch, or the moving ones; when empty those of the batch in a training tower
  /// outside freeze_variables(). False in a training tower freezes the statistics, with one
  /// warning.
  std::optional<bool> training = {};
  std::optional<Activation> activation = {};   ///< none
  std::optional<EmaUpdate> ema_update = {};    ///< kInternal
  std::optional<Initializer> gamma_init = {};  ///< ones
  /// Ghost batch norm: in training, every so many examples are normalised by themselves. The batch
  /// is a multiple of it, or no larger; the moving statistics follow the first part. None.
  std::optional<int64_t> virtual_batch_size = {};
  /// Makes the statistics of training those of all towers: it is given E[x] and E[x^2], float32 of
  /// shape [2, C], and the variance is E[x^2] - E[x]^2 of what it returns, also for the moving
  /// statistics: without Bessel's correction, which those of one tower have. Not together with
  /// virtual_batch_size. None: every tower has its own.
  std::optional<CrossTowerAverage> sync_statistics = {};

  auto fields() {
    return std::tie(momentum, epsilon, center, scale, training, activation, ema_update, gamma_init,
                    virtual_batch_size, sync_statistics);
  }
};

/// Batch normalisation of [N, C] or [N, C, H, W]. Variables `beta`, `gamma`, `mean/EMA`,
/// `variance/EMA`; the moving ones change in the main training tower alone.
at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions options = {});

/// BatchNorm under `<name>/bn`, then relu.
at::Tensor BNReLU(const std::string& name, const at::Tensor& input);

}  // namespace tensorpack
