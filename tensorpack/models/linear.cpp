// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/linear.h"

#include <ATen/ATen.h>

#include "tensorpack/models/detail/weights.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor Linear(const std::string& name, const at::Tensor& input, LinearOptions call_options) {
  return run_layer("Linear", name, input, [&] {
    const LinearOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("Linear");
    TP_CHECK(options.units && *options.units > 0, where,
             "the number of units is {}. Set .units to 1 or more.", options.units.value_or(0));
    TP_CHECK(input.defined() && input.dim() >= 1, where,
             "the input has no dimension of features. Pass a tensor of one dimension or more.");
    const auto [weight, bias] =
        detail::get_weights(options, {*options.units, input.size(-1)}, *options.units);
    return detail::finish_output(at::linear(input, weight, bias), options);
  });
}

}  // namespace tensorpack
