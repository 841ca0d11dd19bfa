// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/patterns.h"

namespace tensorpack {

int64_t elements_of(const Value& value) {
  int64_t elements = 1;
  for (int64_t size : value.sizes) elements *= size;
  return elements;
}

bool is_contiguous(const Value& value) {
  int64_t expected = 1;
  for (size_t i = value.sizes.size(); i-- > 0; expected *= value.sizes[i]) {
    if (value.strides[i] != expected && value.sizes[i] != 1) return false;
  }
  return value.storage_bytes > 0;
}

Node make_node(const Trace& trace, const c10::OperatorHandle& op, std::vector<Argument> arguments,
               const std::vector<ValueId>& results, const std::string& scope) {
  Node node{.op = op, .keys = {}, .arguments = std::move(arguments)};
  for (ValueId id : results) node.results.push_back({.ids = {id}});
  node.for_each_argument([&](ValueId id) { node.reads.push_back(trace.values[id].storage); });
  node.scope = scope;
  return node;
}

ValueId add_value_like(TraceEditor& editor, ValueId id, std::optional<at::ScalarType> dtype) {
  Value value = editor.value(id);
  value.storage = -1;
  value.producer = -1;
  if (dtype) {
    value.storage_bytes /= static_cast<int64_t>(value.options.dtype().itemsize());
    value.options = value.options.dtype(*dtype);
    value.storage_bytes *= static_cast<int64_t>(value.options.dtype().itemsize());
  }
  return editor.add_value(std::move(value));
}

void replace_node(TraceEditor& editor, int32_t position, const c10::OperatorHandle& op,
                  std::vector<Argument> arguments, const std::vector<ValueId>& results) {
  Node node =
      make_node(editor.trace(), op, std::move(arguments), results, editor.node(position).scope);
  editor.remove(position);
  editor.insert(position, std::move(node));
  editor.commit();
}

}  // namespace tensorpack
