// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>

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
  std::optional<Initializer> beta_init = {};   ///< zeros
  std::optional<Initializer> gamma_init = {};  ///< ones
  /// Ghost batch norm: in training, every so many examples are normalised by themselves. The batch
  /// is a multiple of it, or no larger; the moving statistics follow the first part. None.
  std::optional<int64_t> virtual_batch_size = {};
  /// Makes the statistics of training those of all towers: it is given E[x] and E[x^2], float32 of
  /// shape [2, C], and the variance is E[x^2] - E[x]^2 of what it returns, also for the moving
  /// statistics: without Bessel's correction, which those of one tower have. Not together with
  /// virtual_batch_size. None: every tower has its own.
  std::optional<CrossTowerAverage> sync_statistics = {};

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(momentum, epsilon, center, scale, training, activation, ema_update,
                                 beta_init, gamma_init, virtual_batch_size, sync_statistics);
  }
};

/// Batch normalisation of [N, C] or [N, C, H, W]. Variables `beta`, `gamma`, `mean/EMA`,
/// `variance/EMA`; the moving ones change in the main training tower alone.
at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions options = {});

/// BatchNorm under `<name>/bn`, or under `bn` in the scope around it, then relu. Without a name it
/// is an activation: Conv2D("conv0", x, {.activation = BNReLU}) has `conv0/bn/gamma`. An object,
/// because an overloaded function cannot be passed.
struct BatchNormReLU {
  at::Tensor operator()(const std::string& name, const at::Tensor& input) const;
  at::Tensor operator()(const at::Tensor& input) const;
};
inline constexpr BatchNormReLU BNReLU;

struct BatchRenormOptions {
  std::optional<double> rmax = {};            ///< required: the scale is corrected by 1/rmax..rmax
  std::optional<double> dmax = {};            ///< required: the mean by -dmax..dmax deviations
  std::optional<double> momentum = {};        ///< 0.9: share of the old moving average that is kept
  std::optional<double> epsilon = {};         ///< 1e-5
  std::optional<bool> center = {};            ///< true: learn `beta`
  std::optional<bool> scale = {};             ///< true: learn `gamma`
  std::optional<bool> training = {};          ///< as in BatchNormOptions
  std::optional<Activation> activation = {};  ///< none
  std::optional<Initializer> beta_init = {};  ///< zeros
  std::optional<Initializer> gamma_init = {};  ///< ones

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(rmax, dmax, momentum, epsilon, center, scale, training, activation,
                                 beta_init, gamma_init);
  }
};

/// Batch renormalisation (Ioffe, 2017) of [N, C] or [N, C, H, W]: batch norm whose output in
/// training is corrected towards the moving statistics, within limits, so that small batches are
/// normalised as in prediction. Variables as those of BatchNorm.
at::Tensor BatchRenorm(const std::string& name, const at::Tensor& input,
                       BatchRenormOptions options);

}  // namespace tensorpack
