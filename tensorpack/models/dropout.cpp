// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/dropout.h"

#include <ATen/ATen.h>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor Dropout(const std::string& name, const at::Tensor& input, DropoutOptions options) {
  return run_layer("Dropout", name, input, [&] {
    TP_CHECK(options.rate >= 0 && options.rate < 1,
             "Dropout '" + VariableScope::current_path() + "'",
             "the rate is {}. It is the share that is dropped, in [0, 1).", options.rate);
    return at::dropout(input, options.rate, options.training.value_or(is_training()));
  });
}

}  // namespace tensorpack
