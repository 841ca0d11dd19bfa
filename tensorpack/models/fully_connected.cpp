// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/fully_connected.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor FullyConnected(const std::string& name, const at::Tensor& input,
                          FullyConnectedOptions call_options) {
  return run_layer("FullyConnected", name, input, [&] {
    const FullyConnectedOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("FullyConnected");
    TP_CHECK(options.units && *options.units > 0, where,
             "the number of units is {}. Set .units to 1 or more.", options.units.value_or(0));
    TP_CHECK(input.dim() >= 2, where,
             "the input needs a batch dimension and features, got {} dimensions. Reshape it to "
             "[N, features].",
             input.dim());
    const at::Tensor flat = input.flatten(1);
    const at::Tensor weight = get_variable("W", {*options.units, flat.size(1)},
                                           options.kernel_init.value_or(init::he_normal()));
    detail::add_regularization(options.kernel_regularizer, weight);
    at::Tensor bias;
    if (options.use_bias.value_or(true)) {
      bias = get_variable("b", {*options.units}, options.bias_init.value_or(init::zeros()));
    }
    return detail::activate(at::linear(flat, weight, bias), options.activation);
  });
}

}  // namespace tensorpack
