// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/trace_editor.h"

namespace tensorpack {
namespace {

// The nodes of one operator, in order.
std::vector<int32_t> positions_of(const Trace& trace, const std::string& op_name) {
  std::vector<int32_t> positions;
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    if (node.is_collective && node.op_name() == op_name) {
      positions.push_back(static_cast<int32_t>(i));
    }
  }
  return positions;
}

}  // namespace

void overlap_exchanges(Trace& trace) {
  TraceEditor editor(trace);
  // The first one first, and none of those after it is moved by that. They stay in order.
  for (int32_t position : positions_of(trace, "tensorpack::exchange_begin")) {
    const int32_t earliest = editor.interval_of({position}).earliest;
    if (earliest < position) editor.move(position, earliest);
  }
  std::vector<int32_t> ends = positions_of(trace, "tensorpack::exchange_end");
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const int32_t latest = editor.interval_of({*end}).latest;
    if (latest > *end + 1) editor.move(*end, latest);
  }
}

}  // namespace tensorpack
