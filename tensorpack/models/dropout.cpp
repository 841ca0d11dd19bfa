// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/dropout.h"

#include <ATen/ATen.h>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor Dropout(const std::string& name, const at::Tensor& input, DropoutOptions call_options) {
  return run_layer("Dropout", name, input, [&] {
    const DropoutOptions options = with_arg_scope(std::move(call_options));
    const double rate = options.rate.value_or(0.5);
    TP_CHECK(rate >= 0 && rate < 1, "Dropout '" + VariableScope::current_path() + "'",
             "the rate is {}. It is the share that is dropped, in [0, 1).", rate);
    return at::dropout(input, rate, options.training.value_or(is_training()));
  });
}

}  // namespace tensorpack
