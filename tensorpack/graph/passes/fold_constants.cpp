// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>

#include <unordered_set>

#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/passes/passes.h"

namespace tensorpack {
namespace {

// A folded result occupies memory for good, so only small ones of data-independent operators such
// as zeros_like are kept; what depends on constants alone is rarely large.
constexpr int64_t kLargestFoldedBytes = 1 << 16;

using StorageSet = std::unordered_set<StorageId>;

bool has_large_result(const Trace& trace, const Node& node) {
  bool large = false;
  node.for_each_result(
      [&](ValueId id) { large |= trace.values[id].storage_bytes > kLargestFoldedBytes; });
  return large;
}

// zeros_like() and the like look at the shape of their argument alone, which a stand-in can give.
bool needs_shapes_alone(const Trace& trace, const Node& node) {
  bool shapes_known = ignores_contents(node.op.operator_name().name);
  node.for_each_argument([&](ValueId id) { shapes_known &= trace.values[id].storage_bytes >= 0; });
  return shapes_known;
}

bool reads_something_varying(const Trace& trace, const Node& node, const StorageSet& varying) {
  if (needs_shapes_alone(trace, node)) return false;
  for (StorageId storage : node.reads) {
    if (varying.contains(storage)) return true;
  }
  return false;
}

// Memory that changes from run to run. A piece is constant only if everything that makes or writes
// it is, and all writes come before its first use by a node that varies; found by iteration.
std::vector<char> find_constant_nodes(const Trace& trace) {
  StorageSet written, varying;
  for (const Node& node : trace.nodes) written.insert(node.writes.begin(), node.writes.end());
  for (const Value& value : trace.values) {
    const bool varying_constant =
        value.kind == ValueKind::kConstant && (value.varies || written.contains(value.storage));
    if (value.kind == ValueKind::kInput || value.kind == ValueKind::kVariable || varying_constant) {
      varying.insert(value.storage);
    }
  }
  std::vector<char> constant(trace.nodes.size(), 0);
  for (size_t size = varying.size() + 1; size != varying.size();) {
    size = varying.size();
    StorageSet used_by_varying;
    for (size_t i = 0; i < trace.nodes.size(); ++i) {
      const Node& node = trace.nodes[i];
      bool varies = node.is_random || node.is_collective || node.changes_metadata ||
                    node.results.empty() || has_large_result(trace, node) ||
                    reads_something_varying(trace, node, varying);
      for (StorageId storage : node.writes) {
        varies |= varying.contains(storage) || used_by_varying.contains(storage);
      }
      node.for_each_result(
          [&](ValueId id) { varies |= varying.contains(trace.values[id].storage); });
      constant[i] = !varies;
      if (!varies) continue;
      varying.insert(node.writes.begin(), node.writes.end());
      used_by_varying.insert(node.reads.begin(), node.reads.end());
      node.for_each_result([&](ValueId id) { varying.insert(trace.values[id].storage); });
    }
  }
  return constant;
}

}  // namespace

void fold_constants(Trace& trace) {
  const std::vector<char> constant = find_constant_nodes(trace);
  std::vector<c10::IValue> slots(trace.values.size());
  for (size_t i = 0; i < trace.values.size(); ++i) {
    if (trace.values[i].tensor.defined()) slots[i] = trace.values[i].tensor;
  }
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    if (!constant[i]) continue;
    if (needs_shapes_alone(trace, trace.nodes[i])) {
      trace.nodes[i].for_each_argument([&](ValueId id) {
        const Value& value = trace.values[id];
        if (slots[id].isNone()) {
          slots[id] = at::empty_strided(value.sizes, value.strides, value.options);
        }
      });
    }
    run_node(trace.nodes[i], slots);
    trace.nodes[i].for_each_result([&](ValueId id) {
      Value& value = trace.values[id];
      if (value.kind != ValueKind::kComputed) return;  // written in place
      value.kind = ValueKind::kConstant;
      value.producer = -1;
      value.tensor = slots[id].toTensor();
    });
  }
  trace.erase_nodes(constant);
}

}  // namespace tensorpack
