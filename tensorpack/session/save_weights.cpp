// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/save_weights.h"

#include "tensorpack/checkpoint/weights_file.h"

namespace tensorpack {

NamedTensors weights_of(const Graph& graph) {
  NamedTensors weights;
  for (const Variable& variable : graph.variables().all()) {
    const bool is_weight =
        variable.role == VariableRole::kTrainable || variable.role == VariableRole::kModel;
    if (is_weight && variable.is_saved()) weights.emplace(variable.name, variable.tensor.detach());
  }
  return weights;
}

void save_weights(const Graph& graph, const std::filesystem::path& path, const NameMap& names) {
  const auto lock = graph.lock_variables();
  write_weights(path, to_foreign(names, weights_of(graph)));
}

}  // namespace tensorpack
