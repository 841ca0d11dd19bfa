// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/side_by_side.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>

#include "tensorpack/graph/interpreter.h"
#include "tensorpack/session/comparison.h"
#include "tensorpack/session/difference.h"

namespace tensorpack {
namespace {

struct Step {
  const Node* node;
  size_t index;       // in its trace
  bool is_rewritten;  // runs beside
};

bool is_same(const Argument& a, const Argument& b) {
  return a.kind == b.kind && a.ids == b.ids && a.literal.is(b.literal);
}

bool is_same(const Result& a, const Result& b) { return a.is_list == b.is_list && a.ids == b.ids; }

bool is_same(const Node& a, const Node& b) {
  const auto same = [](const auto& one, const auto& other) { return is_same(one, other); };
  return a.op.operator_name() == b.op.operator_name() &&
         std::equal(a.arguments.begin(), a.arguments.end(), b.arguments.begin(), b.arguments.end(),
                    same) &&
         std::equal(a.results.begin(), a.results.end(), b.results.begin(), b.results.end(), same);
}

bool has_no_effects(const Node& node) {
  return node.writes.empty() && !node.is_random && !node.is_collective && !node.changes_metadata;
}

// All nodes of the plain trace, in order, and between them those that only the other one has.
// Nothing if nodes that only one has do more than compute.
std::optional<std::vector<Step>> schedule(const Trace& plain, const Trace& rewritten) {
  std::vector<Step> steps;
  size_t next = 0;
  const auto add_plain = [&] {
    steps.push_back({&plain.nodes[next], next, false});
    ++next;
  };
  for (size_t i = 0; i < rewritten.nodes.size(); ++i) {
    const Node& node = rewritten.nodes[i];
    const auto found =
        std::find_if(plain.nodes.begin() + static_cast<std::ptrdiff_t>(next), plain.nodes.end(),
                     [&](const Node& other) { return is_same(node, other); });
    if (found == plain.nodes.end()) {
      if (!has_no_effects(node)) return std::nullopt;
      steps.push_back({&node, i, true});
      continue;
    }
    const auto position = static_cast<size_t>(found - plain.nodes.begin());
    while (next < position) {
      if (!has_no_effects(plain.nodes[next])) return std::nullopt;
      add_plain();
    }
    add_plain();
  }
  while (next < plain.nodes.size()) {
    if (!has_no_effects(plain.nodes[next])) return std::nullopt;
    add_plain();
  }
  return steps;
}

class Comparison {
 public:
  Comparison(const Trace& plain, const Trace& rewritten, const std::vector<at::Tensor>& inputs)
      : slots_(make_slots(plain, inputs)) {
    slots_.resize(std::max(slots_.size(), rewritten.values.size()));
    is_plain_.resize(slots_.size(), 0);
    for (const Node& node : plain.nodes) {
      node.for_each_result([this](ValueId id) { is_plain_[id] = 1; });
    }
  }

  // False if an argument is not there.
  bool run(const Step& step) {
    if (!step.is_rewritten) {
      run_node(*step.node, slots_);
      step.node->for_each_result([this](ValueId id) { compare(id); });
      return true;
    }
    bool has_arguments = true;
    step.node->for_each_argument([&](ValueId id) { has_arguments &= !slots_[id].isNone(); });
    if (has_arguments) run_beside(step);
    return has_arguments;
  }

  void release(ValueId id) { slots_[id] = {}; }
  at::Tensor value(ValueId id) const { return slots_[id].toTensor(); }
  bool has_compared_all() const { return made_beside_.empty(); }
  const std::string& difference() const { return difference_; }

 private:
  struct Made {
    at::Tensor tensor;
    std::string place;
  };

  void run_beside(const Step& step) {
    std::vector<c10::IValue> slots = slots_;
    run_node(*step.node, slots);
    step.node->for_each_result([&](ValueId id) {
      if (is_plain_[id] == 0) {
        slots_[id] = slots[id];
        return;
      }
      const at::Tensor made = slots[id].toTensor();
      made_beside_[id] = {made.defined() ? made.clone() : made, place_of(*step.node, step.index)};
      if (!slots_[id].isNone()) compare(id);
    });
  }

  void compare(ValueId id) {
    const auto made = made_beside_.find(id);
    if (made == made_beside_.end()) return;
    if (difference_.empty() && !is_equal(value(id), made->second.tensor)) {
      difference_ = made->second.place;
    }
    made_beside_.erase(made);
  }

  std::vector<c10::IValue> slots_;       // the plain program's values, and others that are new
  std::vector<char> is_plain_;           // by value: a node of the plain program makes it
  std::map<ValueId, Made> made_beside_;  // until the plain program has made them, too
  std::string difference_;
};

// The values that no step uses after each.
std::vector<std::vector<ValueId>> ends_of(const std::vector<Step>& steps, const Trace& plain) {
  std::map<ValueId, size_t> last;
  for (size_t i = 0; i < steps.size(); ++i) {
    const auto use = [&](ValueId id) { last[id] = i; };
    steps[i].node->for_each_argument(use);
    steps[i].node->for_each_result(use);
  }
  for (const auto& [name, id] : plain.outputs) last.erase(id);
  std::vector<std::vector<ValueId>> ends(steps.size());
  for (const auto& [id, step] : last) ends[step].push_back(id);
  return ends;
}

}  // namespace

std::optional<SideBySide> run_side_by_side(const Trace& plain, const Trace& rewritten,
                                           const std::vector<at::Tensor>& inputs,
                                           const std::vector<std::string>& fetches) {
  const auto steps = schedule(plain, rewritten);
  if (!steps || plain.outputs != rewritten.outputs) return std::nullopt;
  Comparison comparison(plain, rewritten, inputs);
  const auto ends = ends_of(*steps, plain);
  for (size_t i = 0; i < steps->size(); ++i) {
    if (!comparison.run((*steps)[i])) return std::nullopt;
    for (ValueId id : ends[i]) comparison.release(id);
  }
  if (!comparison.has_compared_all()) return std::nullopt;
  SideBySide result{.difference = comparison.difference()};
  for (const std::string& name : fetches) {
    result.outputs.push_back(comparison.value(plain.outputs.at(name)));
  }
  return result;
}

}  // namespace tensorpack
