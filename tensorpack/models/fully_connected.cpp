// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/fully_connected.h"

#include <ATen/ATen.h>

#include "tensorpack/models/detail/weights.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

at::Tensor FullyConnected(const std::string& name, const at::Tensor& input,
                          FullyConnectedOptions call_options) {
  return run_layer("FullyConnected", name, input, [&] {
    const FullyConnectedOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("FullyConnected");
    TP_CHECK(options.units && *options.units > 0, where,
             "the number of units is {}. Set .units to 1 or more.", options.units.value_or(0));
    TP_CHECK(input.dim() >= 2, where,
             "the input needs a batch dimension and features, got {}. Reshape it to "
             "[N, features].",
             counted(input.dim(), "dimension"));
    if (input.dim() == 3) {
      logging::warning_once(
          "[{}] flattens its input of [N, {}, {}] to [N, {}]. For a layer over the last dimension "
          "use Linear; if it is meant, write .flatten(1).",
          where, input.size(1), input.size(2), input.size(1) * input.size(2));
    }
    const at::Tensor flat = input.flatten(1);
    const auto [weight, bias] =
        detail::get_weights(options, {*options.units, flat.size(1)}, *options.units);
    return detail::finish_output(at::linear(flat, weight, bias), options);
  });
}

}  // namespace tensorpack
