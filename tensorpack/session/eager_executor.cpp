// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/eager_executor.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {

std::vector<at::Tensor> EagerExecutor::run(const Op& op, const std::vector<at::Tensor>& inputs,
                                           const std::vector<std::string>& fetches) {
  const NamedTensors outputs = op.run_body(inputs, fetches);
  std::vector<at::Tensor> values;
  at::NoGradGuard no_grad;
  for (const std::string& name : fetches) {
    auto found = outputs.find(name);
    TP_CHECK(
        found != outputs.end(), "run '" + op.name() + "'",
        "the tensor '{}' was named when the op was built but not in this run. Name it in every "
        "call.",
        name);
    values.push_back(found->second.detach().clone());
  }
  return values;
}

}  // namespace tensorpack
