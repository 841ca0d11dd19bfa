// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/check_batch.h"

#include <algorithm>
#include <string>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

std::vector<at::Tensor> place_batch(const std::vector<TensorSpec>& inputs,
                                    std::vector<at::Tensor> batch) {
  if (batch.size() == inputs.size()) return batch;
  const auto has_default = [](const TensorSpec& spec) { return bool(spec.default_value); };
  const auto defaults = std::count_if(inputs.begin(), inputs.end(), has_default);
  if (std::ssize(batch) + defaults != std::ssize(inputs)) {
    std::vector<std::string> names;
    for (const TensorSpec& spec : inputs) {
      names.push_back(spec.name + (has_default(spec) ? " with a default" : ""));
    }
    throw make_error("input",
                     "a datapoint has {}, the input signature has {} ({}). Make the "
                     "dataflow yield one tensor per input.",
                     counted(std::ssize(batch), "component"), inputs.size(), join(names, ", "));
  }
  std::vector<at::Tensor> placed(inputs.size());
  auto component = batch.begin();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!has_default(inputs[i])) placed[i] = std::move(*component++);
  }
  return placed;
}

void check_batch(const std::vector<TensorSpec>& inputs, const std::vector<at::Tensor>& batch) {
  const std::vector<at::Tensor> placed = place_batch(inputs, batch);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (placed[i].defined() || !inputs[i].default_value) inputs[i].check(placed[i]);
  }
}

}  // namespace tensorpack
