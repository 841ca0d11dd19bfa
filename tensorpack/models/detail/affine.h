// SPDX-License-Identifier: Apache-2.0
// What normalisations have in common.
#pragma once

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

/// What is learned of a normalisation; undefined if it is not.
struct Affine {
  at::Tensor beta = {};
  at::Tensor gamma = {};
};

/// The variables `beta` and `gamma` [size], as the options of a layer say.
template <typename Options>
Affine get_affine(const Options& options, int64_t size) {
  Affine affine;
  if (options.center.value_or(true)) {
    affine.beta = get_variable("beta", {size}, options.beta_init.value_or(init::zeros()));
  }
  if (options.scale.value_or(true)) {
    affine.gamma = get_variable("gamma", {size}, options.gamma_init.value_or(init::ones()));
  }
  return affine;
}

}  // namespace tensorpack::detail
