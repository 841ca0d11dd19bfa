// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/trace_editor.h"

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

bool contains(const std::vector<int32_t>& nodes, int32_t node) {
  return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

StorageId count_storages(const Trace& trace) {
  StorageId count = 0;
  for (const Value& value : trace.values) count = std::max(count, value.storage + 1);
  return count;
}

}  // namespace

void TraceEditor::look() {
  const auto storages = static_cast<size_t>(count_storages(trace_));
  readers_.assign(trace_.values.size(), {});
  accesses_.assign(storages, {});
  values_in_.assign(storages, {});
  is_output_.assign(trace_.values.size(), 0);
  is_removed_.assign(trace_.nodes.size(), 0);
  insertions_.clear();
  for (size_t id = 0; id < trace_.values.size(); ++id) {
    const Value& value = trace_.values[id];
    const bool is_left_over = value.kind == ValueKind::kComputed && value.producer < 0;
    if (!is_left_over) values_in_[value.storage].push_back(static_cast<ValueId>(id));
  }
  for (const auto& [name, id] : trace_.outputs) is_output_[id] = 1;
  for (int32_t i = 0; i < size(); ++i) {
    const Node& node = trace_.nodes[i];
    const auto touch = [&](StorageId storage, bool writes) {
      std::vector<Access>& list = accesses_[storage];
      if (list.empty() || list.back().node != i) list.push_back({i, false});
      list.back().writes |= writes;
    };
    node.for_each_argument([&](ValueId id) {
      if (readers_[id].empty() || readers_[id].back() != i) readers_[id].push_back(i);
      touch(trace_.values[id].storage, false);
    });
    for (StorageId storage : node.reads) touch(storage, false);
    for (StorageId storage : node.writes) touch(storage, true);
    node.for_each_result([&](ValueId id) {
      const Value& value = trace_.values[id];
      if (value.producer == i && !node.is_view) touch(value.storage, true);
    });
  }
}

std::vector<int32_t> TraceEditor::writers(StorageId storage) const {
  std::vector<int32_t> nodes;
  for (const Access& access : accesses_[storage]) {
    const std::vector<StorageId>& writes = trace_.nodes[access.node].writes;
    if (std::find(writes.begin(), writes.end(), storage) != writes.end()) {
      nodes.push_back(access.node);
    }
  }
  return nodes;
}

bool TraceEditor::is_private(ValueId id) const {
  const Value& value = trace_.values[id];
  return value.kind == ValueKind::kComputed && !is_output(id) &&
         values_in_[value.storage].size() == 1 && writers(value.storage).empty();
}

const Node* TraceEditor::producer(ValueId id) const {
  const int32_t position = trace_.values[id].producer;
  return position < 0 ? nullptr : &trace_.nodes[position];
}

TraceEditor::Interval TraceEditor::interval_of(const std::vector<int32_t>& nodes) const {
  Interval interval{0, size()};
  // What `node` does must stay after the other nodes' accesses before it, and before those after
  // it.
  const auto stay_in_order = [&](int32_t node, StorageId storage, bool writes) {
    for (const Access& other : accesses_[storage]) {
      if (contains(nodes, other.node) || (!writes && !other.writes)) continue;
      if (other.node < node) interval.earliest = std::max(interval.earliest, other.node + 1);
      if (other.node > node) interval.latest = std::min(interval.latest, other.node);
    }
  };
  // Later draws depend on earlier ones, and all towers exchange in the same order.
  const auto stay_among_its_kind = [&](int32_t position) {
    const Node& node = trace_.nodes[position];
    if (!node.is_random && !node.is_collective) return;
    for (int32_t other = 0; other < size(); ++other) {
      const bool is_of_its_kind = (node.is_random && trace_.nodes[other].is_random) ||
                                  (node.is_collective && trace_.nodes[other].is_collective);
      if (!is_of_its_kind || contains(nodes, other)) continue;
      if (other < position) interval.earliest = std::max(interval.earliest, other + 1);
      if (other > position) interval.latest = std::min(interval.latest, other);
    }
  };
  for (int32_t position : nodes) {
    const Node& node = trace_.nodes[position];
    stay_among_its_kind(position);
    node.for_each_argument([&](ValueId id) {
      const int32_t made_at = trace_.values[id].producer;
      if (!contains(nodes, made_at)) interval.earliest = std::max(interval.earliest, made_at + 1);
      stay_in_order(position, trace_.values[id].storage, false);
    });
    for (StorageId storage : node.reads) stay_in_order(position, storage, false);
    for (StorageId storage : node.writes) stay_in_order(position, storage, true);
    node.for_each_result([&](ValueId id) {
      for (int32_t reader : readers_[id]) {
        if (reader > position && !contains(nodes, reader)) {
          interval.latest = std::min(interval.latest, reader);
        }
      }
      if (trace_.values[id].producer == position && !node.is_view) {
        stay_in_order(position, trace_.values[id].storage, true);
      }
    });
  }
  return interval;
}

ValueId TraceEditor::add_value(Value value) {
  if (value.storage < 0) value.storage = count_storages(trace_);
  trace_.values.push_back(std::move(value));
  return static_cast<ValueId>(trace_.values.size() - 1);
}

void TraceEditor::replace_uses(ValueId from, ValueId to, int32_t first) {
  const StorageId old_storage = trace_.values[from].storage;
  for (int32_t i = first; i < size(); ++i) {
    Node& node = trace_.nodes[i];
    for (Argument& argument : node.arguments) {
      std::replace(argument.ids.begin(), argument.ids.end(), from, to);
    }
    for (Result& result : node.results) {  // of operators that return what they wrote
      std::replace(result.ids.begin(), result.ids.end(), from, to);
    }
    bool uses_old_memory = false;
    node.for_each_argument(
        [&](ValueId id) { uses_old_memory |= trace_.values[id].storage == old_storage; });
    if (uses_old_memory) continue;
    for (std::vector<StorageId>* storages : {&node.reads, &node.writes}) {
      std::replace(storages->begin(), storages->end(), old_storage, trace_.values[to].storage);
    }
  }
  for (auto& [name, id] : trace_.outputs) {
    if (id == from) id = to;
  }
}

void TraceEditor::commit() {
  std::stable_sort(insertions_.begin(), insertions_.end(),
                   [](const Insertion& a, const Insertion& b) { return a.before < b.before; });
  std::vector<Node> nodes;
  std::vector<int32_t> new_position(trace_.nodes.size(), -1);
  std::vector<int32_t> inserted;
  auto next = insertions_.begin();
  for (int32_t i = 0; i <= size(); ++i) {
    for (; next != insertions_.end() && next->before <= i; ++next) {
      inserted.push_back(static_cast<int32_t>(nodes.size()));
      nodes.push_back(std::move(next->node));
    }
    if (i == size() || is_removed_[i]) continue;
    new_position[i] = static_cast<int32_t>(nodes.size());
    nodes.push_back(std::move(trace_.nodes[i]));
  }
  for (Value& value : trace_.values) {
    if (value.producer >= 0) value.producer = new_position[value.producer];
  }
  for (int32_t position : inserted) {
    nodes[position].for_each_result([&](ValueId id) {
      Value& value = trace_.values[id];
      if (value.kind == ValueKind::kComputed && value.producer < 0) value.producer = position;
    });
  }
  trace_.nodes = std::move(nodes);
  look();
}

void TraceEditor::move(int32_t position, int32_t before) {
  TP_ASSERT(insertions_.empty());
  Node node = trace_.nodes[position];
  node.for_each_result([&](ValueId id) {
    if (trace_.values[id].producer == position) disown(id);
  });
  remove(position);
  insert(before, std::move(node));
  commit();
}

bool TraceEditor::fuse(const std::vector<int32_t>& nodes, Node fused) {
  TP_ASSERT(!nodes.empty() && insertions_.empty());
  const Interval interval = interval_of(nodes);
  if (interval.earliest > interval.latest) return false;
  const int32_t last = *std::max_element(nodes.begin(), nodes.end());
  for (int32_t position : nodes) remove(position);
  insert(std::clamp(last, interval.earliest, interval.latest), std::move(fused));
  commit();
  return true;
}

}  // namespace tensorpack
