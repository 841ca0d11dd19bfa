// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/fetch_spec.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

TensorSpec fetch_spec(const Graph& graph, const Op& op, const std::string& name,
                      std::string_view where) {
  if (const std::optional<TensorSpec> found = op.find_tensor(name)) return *found;
  if (const Variable* variable = graph.variables().find(name)) {
    return {.name = name,
            .shape = variable->tensor.sizes().vec(),
            .dtype = variable->tensor.scalar_type()};
  }
  std::vector<std::string> known = graph.variables().names();
  for (const auto& [output, spec] : op.outputs()) known.push_back(output);
  for (const TensorSpec& input : op.inputs()) known.push_back(input.name);
  throw make_error(where, "no tensor, input or variable named '{}' in '{}'. {}", name, op.name(),
                   did_you_mean(name, known));
}

}  // namespace tensorpack
