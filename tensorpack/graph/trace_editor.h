// SPDX-License-Identifier: Apache-2.0
// Questions and changes of a trace that passes have in common.
//
// Note [Moving nodes]
// A node may stand anywhere between what it depends on and what depends on it: after the nodes that
// make its arguments and the last write to what it reads, before the first use of its results and
// the next write to what it reads. Nodes that draw random numbers stay in order among themselves,
// and so do those that exchange with other towers. The same holds for several nodes that become
// one.
#pragma once

#include <cstdint>
#include <vector>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// An editor of one trace, which nobody else may change meanwhile. Positions are indices of nodes;
/// they change with commit() alone, and so do the answers.
class TraceEditor {
 public:
  explicit TraceEditor(Trace& trace) : trace_(trace) { look(); }

  const Trace& trace() const { return trace_; }
  const Node& node(int32_t position) const { return trace_.nodes[position]; }
  const Value& value(ValueId id) const { return trace_.values[id]; }
  int32_t size() const { return static_cast<int32_t>(trace_.nodes.size()); }

  /// The nodes that have the value among their arguments, in order.
  const std::vector<int32_t>& readers(ValueId id) const { return readers_[id]; }
  /// The nodes that write the memory after it was made, in order.
  std::vector<int32_t> writers(StorageId storage) const;
  /// The values that lie in the memory.
  const std::vector<ValueId>& values_in(StorageId storage) const { return values_in_[storage]; }
  /// True if the trace names the value.
  bool is_output(ValueId id) const { return is_output_[id] != 0; }
  /// True if nothing but nodes reads the value's memory, through this value alone, and nobody
  /// writes it: what makes it and what reads it may become one node.
  bool is_private(ValueId id) const;
  /// The node that makes the value; nullptr if none does.
  const Node* producer(ValueId id) const;

  /// Positions before which something may stand: from `earliest` to `latest`. Empty if the first is
  /// greater.
  struct Interval {
    int32_t earliest = 0;
    int32_t latest = 0;
  };
  /// Where these nodes, in order, may stand as one. See Note [Moving nodes].
  Interval interval_of(const std::vector<int32_t>& nodes) const;

  /// A new value, which lies in memory of its own unless `storage` is set.
  ValueId add_value(Value value);
  /// Has the nodes from `first` on, and the outputs, use `to` in place of `from`.
  void replace_uses(ValueId from, ValueId to, int32_t first = 0);
  /// Puts a node in front of the one at `before`, or at the end; its results are made there.
  void insert(int32_t before, Node node) { insertions_.push_back({before, std::move(node)}); }
  void remove(int32_t position) { is_removed_[position] = 1; }
  /// Has the node at `position` stand in front of the one at `before`, or at the end, and commits.
  /// The place must be in its interval.
  void move(int32_t position, int32_t before);
  /// Changes a node where it stands.
  Node& edit(int32_t position) { return trace_.nodes[position]; }
  /// Forgets which node makes the value; one that is inserted with it among its results will.
  void disown(ValueId id) { trace_.values[id].producer = -1; }
  /// Carries out what was inserted and removed.
  void commit();

  /// Puts `fused` in the place of `nodes`, as near to the last of them as can be, and commits. Does
  /// nothing and returns false if there is no such place.
  bool fuse(const std::vector<int32_t>& nodes, Node fused);

 private:
  struct Access {
    int32_t node = 0;
    bool writes = false;
  };
  struct Insertion {
    int32_t before = 0;
    Node node;
  };
  void look();

  Trace& trace_;
  std::vector<std::vector<int32_t>> readers_;    // by value
  std::vector<std::vector<Access>> accesses_;    // by storage, in order
  std::vector<std::vector<ValueId>> values_in_;  // by storage
  std::vector<char> is_output_;                  // by value
  std::vector<char> is_removed_;                 // by node
  std::vector<Insertion> insertions_;
};

}  // namespace tensorpack
