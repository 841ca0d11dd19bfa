// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/passes/passes.h"

namespace tensorpack {

void fold_views(Trace& trace) {
  std::vector<c10::IValue> slots(trace.values.size());
  for (size_t i = 0; i < trace.values.size(); ++i) {
    if (trace.values[i].is_persistent()) slots[i] = trace.values[i].tensor;
  }
  std::vector<char> folded(trace.nodes.size(), 0);
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    bool foldable = node.is_view && !node.changes_metadata && !node.is_random;
    node.for_each_argument([&](ValueId id) { foldable &= trace.values[id].is_persistent(); });
    if (!foldable) continue;
    run_node(node, slots);
    bool varies = false;
    node.for_each_argument([&](ValueId id) {
      varies |= trace.values[id].kind == ValueKind::kVariable || trace.values[id].varies;
    });
    node.for_each_result([&](ValueId id) {
      Value& value = trace.values[id];
      if (value.kind != ValueKind::kComputed) return;
      value.kind = ValueKind::kConstant;
      value.producer = -1;
      value.tensor = slots[id].toTensor();
      value.varies = varies;
    });
    folded[i] = 1;
  }
  trace.erase_nodes(folded);
}

}  // namespace tensorpack
