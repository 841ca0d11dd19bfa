// SPDX-License-Identifier: Apache-2.0
#include <unordered_set>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

// Walks backwards with two sets: values somebody needs, and memory whose contents somebody reads
// from here on, so that earlier writes to it must stay.
void eliminate_dead_code(Trace& trace, const std::vector<std::string>& fetches) {
  std::map<std::string, ValueId> outputs;
  for (const std::string& name : fetches) {
    auto found = trace.outputs.find(name);
    TP_ASSERT(found != trace.outputs.end());
    outputs.insert(*found);
  }
  trace.outputs = std::move(outputs);

  std::unordered_set<StorageId> persistent;
  for (const Value& value : trace.values) {
    if (value.is_persistent()) persistent.insert(value.storage);
  }
  std::vector<char> live_value(trace.values.size(), 0);
  std::unordered_set<StorageId> live_storage;
  auto mark = [&](ValueId id) {
    live_value[id] = 1;
    live_storage.insert(trace.values[id].storage);
  };
  for (const auto& [name, id] : trace.outputs) mark(id);

  std::vector<char> remove(trace.nodes.size(), 1);
  for (size_t i = trace.nodes.size(); i-- > 0;) {
    const Node& node = trace.nodes[i];
    bool needed = node.is_random || node.is_collective;
    needed |= node.results.empty() && node.writes.empty();  // a pure effect: an assertion
    node.for_each_result([&](ValueId id) {
      needed |= live_value[id] && trace.values[id].producer == static_cast<int32_t>(i);
    });
    for (StorageId storage : node.writes) {
      needed |= persistent.contains(storage) || live_storage.contains(storage);
    }
    if (!needed) continue;
    remove[i] = 0;
    node.for_each_argument(mark);
  }
  trace.erase_nodes(remove);
}

}  // namespace tensorpack
