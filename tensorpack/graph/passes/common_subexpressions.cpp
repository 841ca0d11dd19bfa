// SPDX-License-Identifier: Apache-2.0
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "tensorpack/graph/passes/passes.h"

namespace tensorpack {
namespace {

bool is_simple(const c10::IValue& value) {
  return value.isNone() || value.isInt() || value.isDouble() || value.isBool() ||
         value.isString() || value.isIntList() || value.isDoubleList() || value.isBoolList() ||
         value.isDevice() || value.isComplexDouble();
}

// Text that is equal exactly for nodes that compute the same thing; "" if that cannot be told.
std::string signature_of(const Node& node, const std::vector<ValueId>& representative,
                         const std::unordered_map<StorageId, int>& version) {
  std::ostringstream text;
  text << std::hexfloat << node.op_name() << '|' << node.grad_mode;
  for (const Argument& argument : node.arguments) {
    text << '|';
    if (argument.kind == Argument::Kind::kLiteral) {
      if (!is_simple(argument.literal)) return "";
      text << argument.literal.tagKind() << ' ' << argument.literal;
      continue;
    }
    for (ValueId id : argument.ids) text << (id == kNoValue ? id : representative[id]) << ',';
  }
  for (StorageId storage : node.reads) {
    auto found = version.find(storage);
    text << '#' << (found == version.end() ? 0 : found->second);
  }
  return text.str();
}

}  // namespace

void merge_common_subexpressions(Trace& trace) {
  std::unordered_set<StorageId> written;
  for (const Node& node : trace.nodes) written.insert(node.writes.begin(), node.writes.end());

  std::vector<ValueId> representative(trace.values.size());
  for (size_t i = 0; i < representative.size(); ++i) representative[i] = static_cast<ValueId>(i);
  std::unordered_map<StorageId, int> version;  // counts writes so far
  std::unordered_map<std::string, size_t> first_with;
  std::vector<char> merged(trace.nodes.size(), 0);

  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    Node& node = trace.nodes[i];
    for (Argument& argument : node.arguments) {
      for (ValueId& id : argument.ids) {
        if (id != kNoValue) id = representative[id];
      }
    }
    for (StorageId storage : node.writes) ++version[storage];
    bool pure = node.writes.empty() && !node.is_random && !node.is_collective &&
                !node.changes_metadata && !node.results.empty();
    // A result that is written later belongs to its node alone.
    node.for_each_result([&](ValueId id) {
      pure &= trace.values[id].producer == static_cast<int32_t>(i) &&
              (node.is_view || !written.contains(trace.values[id].storage));
    });
    if (!pure) continue;
    const std::string signature = signature_of(node, representative, version);
    if (signature.empty()) continue;
    auto [found, is_first] = first_with.emplace(signature, i);
    if (is_first) continue;
    const Node& original = trace.nodes[found->second];
    for (size_t r = 0; r < node.results.size(); ++r) {
      for (size_t k = 0; k < node.results[r].ids.size(); ++k) {
        const ValueId mine = node.results[r].ids[k];
        const ValueId theirs = original.results[r].ids[k];
        if (mine != kNoValue) representative[mine] = theirs;
      }
    }
    merged[i] = 1;
  }
  // Memory of merged results is now that of the originals.
  std::unordered_map<StorageId, StorageId> storage_of;
  for (size_t i = 0; i < trace.values.size(); ++i) {
    const ValueId original = representative[i];
    if (original != static_cast<ValueId>(i)) {
      storage_of.emplace(trace.values[i].storage, trace.values[original].storage);
    }
  }
  auto rename = [&](std::vector<StorageId>& storages) {
    for (StorageId& storage : storages) {
      auto found = storage_of.find(storage);
      if (found != storage_of.end()) storage = found->second;
    }
  };
  for (Node& node : trace.nodes) {
    rename(node.reads);
    rename(node.writes);
  }
  for (Value& value : trace.values) {
    auto found = storage_of.find(value.storage);
    if (found != storage_of.end()) value.storage = found->second;
  }
  for (auto& [name, id] : trace.outputs) id = representative[id];
  trace.erase_nodes(merged);
}

}  // namespace tensorpack
