// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/check_batch.h"

#include <string>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

void check_batch_size(const std::vector<TensorSpec>& inputs, const std::vector<at::Tensor>& batch) {
  if (batch.size() == inputs.size()) return;
  std::vector<std::string> names;
  for (const TensorSpec& spec : inputs) names.push_back(spec.name);
  throw make_error("input",
                   "a datapoint has {}, the input signature has {} ({}). Make the "
                   "dataflow yield one tensor per input.",
                   counted(std::ssize(batch), "component"), inputs.size(), join(names, ", "));
}

void check_batch(const std::vector<TensorSpec>& inputs, const std::vector<at::Tensor>& batch) {
  check_batch_size(inputs, batch);
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i].check(batch[i]);
}

}  // namespace tensorpack
