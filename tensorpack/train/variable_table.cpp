// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/variable_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

std::string variable_table(Graph& graph) {
  const std::vector<Variable*> variables = graph.variables().trainable();
  size_t name_width = 4;
  size_t shape_width = 5;
  std::set<std::string> devices, types;
  auto shape_of = [](const Variable& v) {
    return fmt::format("[{}]", fmt::join(v.tensor.sizes(), ", "));
  };
  for (const Variable* variable : variables) {
    name_width = std::max(name_width, variable->name.size());
    shape_width = std::max(shape_width, shape_of(*variable).size());
    devices.insert(variable->tensor.device().str());
    types.insert(c10::toString(variable->tensor.scalar_type()));
  }
  // Columns that would say the same in every row say nothing.
  const bool with_device = devices.size() > 1;
  const bool with_type = types.size() > 1;

  std::string table =
      fmt::format("{:<{}}  {:<{}}  {:>10}{}{}\n", "name", name_width, "shape", shape_width,
                  "#elements", with_device ? "  device" : "", with_type ? "  dtype" : "");
  int64_t elements = 0;
  uint64_t bytes = 0;
  for (const Variable* variable : variables) {
    const at::Tensor& tensor = variable->tensor;
    elements += tensor.numel();
    bytes += tensor.numel() * tensor.element_size();
    table +=
        fmt::format("{:<{}}  {:<{}}  {:>10}{}{}\n", variable->name, name_width, shape_of(*variable),
                    shape_width, tensor.numel(), with_device ? "  " + tensor.device().str() : "",
                    with_type ? fmt::format("  {}", c10::toString(tensor.scalar_type())) : "");
  }
  return table + fmt::format("Number of trainable variables: {}; elements: {}; size: {}",
                             variables.size(), elements, humanize_bytes(bytes));
}

void log_variables(Graph& graph) {
  if (graph.variables().trainable().empty()) {
    logging::info("The graph has no trainable variables.");
  } else {
    logging::info("Trainable variables:\n{}", variable_table(graph));
  }
}

}  // namespace tensorpack
