// SPDX-License-Identifier: Apache-2.0
// Normalisations that look at one example at a time: the same in training and prediction.
#pragma once

#include <optional>

#include "tensorpack/models/arg_scope.h"
#include "tensorpack/models/layer.h"

namespace tensorpack {

struct LayerNormOptions {
  std::optional<double> epsilon = {};          ///< 1e-5
  std::optional<bool> center = {};             ///< true: learn `beta`
  std::optional<bool> scale = {};              ///< true: learn `gamma`
  std::optional<Initializer> beta_init = {};   ///< zeros
  std::optional<Initializer> gamma_init = {};  ///< ones

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(epsilon, center, scale, beta_init, gamma_init);
  }
};

/// Normalises every example of [N, C] or [N, C, H, W] over all of it, and every token of [N, T, C]
/// over its features. Variables `beta` and `gamma`, one number per channel or feature.
at::Tensor LayerNorm(const std::string& name, const at::Tensor& input,
                     LayerNormOptions options = {});

struct InstanceNormOptions {
  std::optional<double> epsilon = {};          ///< 1e-5
  std::optional<bool> center = {};             ///< true: learn `beta`
  std::optional<bool> scale = {};              ///< true: learn `gamma`
  std::optional<Initializer> beta_init = {};   ///< zeros
  std::optional<Initializer> gamma_init = {};  ///< ones

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(epsilon, center, scale, beta_init, gamma_init);
  }
};

/// Normalises every channel of every example of [N, C, H, W]. Variables `beta` and `gamma`.
at::Tensor InstanceNorm(const std::string& name, const at::Tensor& input,
                        InstanceNormOptions options = {});

struct GroupNormOptions {
  std::optional<int64_t> groups = {};          ///< 32
  std::optional<double> epsilon = {};          ///< 1e-5
  std::optional<bool> center = {};             ///< true: learn `beta`
  std::optional<bool> scale = {};              ///< true: learn `gamma`
  std::optional<Initializer> beta_init = {};   ///< zeros
  std::optional<Initializer> gamma_init = {};  ///< ones

  template <typename T = void>
  auto fields() {
    return detail::tie_fields<T>(groups, epsilon, center, scale, beta_init, gamma_init);
  }
};

/// Normalises groups of channels of every example of [N, C, H, W]. Variables `beta` and `gamma`.
at::Tensor GroupNorm(const std::string& name, const at::Tensor& input,
                     GroupNormOptions options = {});

}  // namespace tensorpack
