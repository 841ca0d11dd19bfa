// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/trace.h"

namespace tensorpack {

std::string name_of(const c10::OperatorHandle& op) {
  const c10::OperatorName& name = op.operator_name();
  return name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
}

std::string in_scope(const std::string& path) {
  return path.empty() ? "" : " in scope '" + path + "'";
}

void Trace::erase_nodes(const std::vector<char>& remove) {
  std::vector<int32_t> new_index(nodes.size(), -1);
  size_t kept = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (remove[i]) continue;
    new_index[i] = static_cast<int32_t>(kept);
    if (kept != i) nodes[kept] = std::move(nodes[i]);
    ++kept;
  }
  nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(kept), nodes.end());
  for (Value& value : values) {
    if (value.producer >= 0) value.producer = new_index[value.producer];
  }
}

}  // namespace tensorpack
