// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/fetch_spec.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

TensorSpec fetch_spec(const Graph& graph, const Op& op, const std::string& name,
                      std::string_view where) {
  std::vector<std::string> known;
  for (const auto& [output, spec] : op.outputs()) {
    if (output == name) return spec;
    known.push_back(output);
  }
  for (const TensorSpec& input : op.inputs()) {
    if (input.name == name) return input;
    known.push_back(input.name);
  }
  if (const Variable* variable = graph.variables().find(name)) {
    return {.name = name,
            .shape = variable->tensor.sizes().vec(),
            .dtype = variable->tensor.scalar_type()};
  }
  for (const std::string& variable : graph.variables().names()) known.push_back(variable);
  throw make_error(where, "no tensor, input or variable named '{}' in '{}'. {}", name, op.name(),
                   did_you_mean(name, known));
}

}  // namespace tensorpack
