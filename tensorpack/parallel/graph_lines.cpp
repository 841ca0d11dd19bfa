// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/graph_lines.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

namespace tensorpack {

std::vector<std::string> describe_variables(const Graph& graph, size_t count) {
  std::vector<std::string> lines;
  for (const Variable& variable : graph.variables().all()) {
    if (lines.size() == count) break;
    lines.push_back(fmt::format("variable '{}' [{}] {}", variable.name,
                                fmt::join(variable.tensor.sizes(), ", "),
                                c10::toString(variable.tensor.scalar_type())));
  }
  return lines;
}

std::vector<std::string> describe_nodes(const Op& op, const Trace& trace) {
  std::vector<std::string> lines;
  for (const Node& node : trace.nodes) {
    std::vector<std::string> results;
    node.for_each_result([&](ValueId id) {
      results.push_back(fmt::format("[{}]", fmt::join(trace.values[id].sizes, ", ")));
    });
    lines.push_back(fmt::format("op '{}'{}: {} -> {}", op.name(),
                                node.scope.empty() ? "" : ", in '" + node.scope + "'",
                                node.op_name(), fmt::join(results, ", ")));
  }
  return lines;
}

}  // namespace tensorpack
