// SPDX-License-Identifier: Apache-2.0
// What convolutions and linear layers have in common.
#pragma once

#include <utility>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/models/layer.h"
#include "tensorpack/models/regularize.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

struct Weights {
  at::Tensor kernel = {};
  at::Tensor bias = {};  // undefined without use_bias
};

/// The variables `W` of `shape` and `b` [outputs], as the options of a layer say.
template <typename Options>
Weights get_weights(const Options& options, at::IntArrayRef shape, int64_t outputs) {
  Weights weights;
  weights.kernel = get_variable(
      "W", shape, {.init = options.kernel_init.value_or(init::he_normal()), .channels_last = true});
  add_regularization(options.kernel_regularizer, "W", weights.kernel);
  if (options.use_bias.value_or(true)) {
    weights.bias = get_variable("b", {outputs}, options.bias_init.value_or(init::zeros()));
    add_regularization(options.bias_regularizer, "b", weights.bias);
  }
  return weights;
}

/// The kernel for a convolution of `input`: libtorch's of an empty batch take contiguous ones
/// alone.
inline at::Tensor kernel_for(const at::Tensor& input, const at::Tensor& kernel) {
  return input.size(0) == 0 ? kernel.contiguous() : kernel;
}

/// What such a layer returns: the output after the activation, regularized as the options say.
template <typename Options>
at::Tensor finish_output(at::Tensor output, const Options& options) {
  output = activate(std::move(output), options.activation);
  add_activity_regularization(options.activity_regularizer, output);
  return output;
}

}  // namespace tensorpack::detail
