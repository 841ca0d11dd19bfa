// SPDX-License-Identifier: Apache-2.0
// Note [Fusing pointwise operators]
// A group starts with one node and takes in those that read its results and those that make what it
// reads, as long as all can stand in one place and all results that others read are laid out
// alike. What is read inside the group alone is never stored. Where a result is summed over its
// rows, as the gradients of biases are, the sum becomes part of the kernel.
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/operators.h"
#include "tensorpack/cuda/kernels/pointwise.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/passes/patterns.h"
#include "tensorpack/cuda/passes/pointwise_rules.h"

namespace tensorpack::cuda {
namespace {

constexpr size_t kMostTensors = 16;  // that a kernel reads and makes
constexpr size_t kMostSteps = 48;
// Smaller ones take no longer than their launch, whoever computes them.
constexpr int64_t kWorthAKernel = 1 << 16;

bool is_of_16_bits(const Value& value) { return value.options.dtype().itemsize() == 2; }

// libtorch's kernels compute these in a way that takes longer than the memory.
bool is_slow(const PointwiseNode& node) { return node.op.rfind("gelu", 0) == 0; }

// The values that a group reads and makes, in order.
struct Boundary {
  std::vector<ValueId> inputs = {};
  std::vector<ValueId> outputs = {};
};

class PointwiseFusion {
 public:
  PointwiseFusion(Trace& trace, c10::DeviceType device) : editor_(trace) {
    for (int32_t i = 0; i < editor_.size(); ++i) {
      if (auto node = as_pointwise(editor_, editor_.node(i), device)) {
        candidates_.emplace(result_at(editor_.node(i), 0), std::move(*node));
      }
    }
  }

  int run() {
    int fused = 0;
    for (int32_t i = 0; i < editor_.size(); ++i) {
      const ValueId result = made_by(i);
      if (!candidates_.contains(result) || !tried_.insert(result).second) continue;
      if (!fuse(grow(i))) continue;
      ++fused;
      i = -1;  // positions have changed
    }
    return fused;
  }

 private:
  using Group = std::vector<int32_t>;  // positions, in order

  // kNoValue for operators that give several, or what they were given.
  ValueId made_by(int32_t position) const {
    const Node& node = editor_.node(position);
    const ValueId id = node.results.size() == 1 ? result_at(node, 0) : kNoValue;
    return id != kNoValue && editor_.value(id).producer == position ? id : kNoValue;
  }
  const PointwiseNode& step_of(int32_t position) const { return candidates_.at(made_by(position)); }
  bool is_candidate(int32_t position) const {
    return position >= 0 && candidates_.contains(made_by(position));
  }
  static bool contains(const Group& group, int32_t position) {
    return std::binary_search(group.begin(), group.end(), position);
  }

  // ---- groups

  Group grow(int32_t seed) const {
    Group group = {seed};
    for (bool has_grown = true; has_grown;) {
      has_grown = false;
      for (int32_t neighbour : neighbours_of(group)) {
        Group larger = group;
        larger.insert(std::upper_bound(larger.begin(), larger.end(), neighbour), neighbour);
        if (!can_be_one(larger)) continue;
        group = std::move(larger);
        has_grown = true;
      }
    }
    return group;
  }

  // Candidates of the same shape that read what the group makes, or make what it reads.
  Group neighbours_of(const Group& group) const {
    const std::vector<int64_t>& sizes = editor_.value(made_by(group[0])).sizes;
    Group found;
    const auto consider = [&](int32_t position) {
      if (is_candidate(position) && !contains(group, position) &&
          editor_.value(made_by(position)).sizes == sizes &&
          std::find(found.begin(), found.end(), position) == found.end()) {
        found.push_back(position);
      }
    };
    for (int32_t member : group) {
      for (int32_t reader : editor_.readers(made_by(member))) consider(reader);
      for (const PointwiseOperand& operand : step_of(member).operands) {
        if (operand.id != kNoValue) consider(editor_.value(operand.id).producer);
      }
    }
    return found;
  }

  Boundary boundary_of(const Group& group) const {
    Boundary boundary;
    for (int32_t member : group) {
      const ValueId made = made_by(member);
      const auto& readers = editor_.readers(made);
      const bool is_inside = editor_.is_private(made) && !readers.empty() &&
                             std::all_of(readers.begin(), readers.end(),
                                         [&](int32_t reader) { return contains(group, reader); });
      if (!is_inside) boundary.outputs.push_back(made);
      for (const PointwiseOperand& operand : step_of(member).operands) {
        if (operand.id == kNoValue || contains(group, editor_.value(operand.id).producer)) continue;
        if (std::find(boundary.inputs.begin(), boundary.inputs.end(), operand.id) ==
            boundary.inputs.end()) {
          boundary.inputs.push_back(operand.id);
        }
      }
    }
    return boundary;
  }

  bool can_be_one(const Group& group) const {
    const Boundary boundary = boundary_of(group);
    if (group.size() > kMostSteps || boundary.outputs.empty() ||
        boundary.inputs.size() + boundary.outputs.size() > kMostTensors) {
      return false;
    }
    const Value& first = editor_.value(boundary.outputs[0]);
    const bool are_alike =
        std::all_of(boundary.outputs.begin(), boundary.outputs.end(),
                    [&](ValueId id) { return editor_.value(id).strides == first.strides; });
    if (!are_alike || !is_dense(first.sizes, first.strides)) return false;
    const TraceEditor::Interval interval = editor_.interval_of(group);
    return interval.earliest <= interval.latest;
  }

  // ---- formulas

  Formula formula_of(const Group& group, const Boundary& boundary) const {
    Formula formula{.inputs = static_cast<int>(boundary.inputs.size())};
    std::unordered_map<ValueId, int> numbers;
    for (ValueId id : boundary.inputs) numbers.emplace(id, static_cast<int>(numbers.size()));
    for (int32_t member : group) {
      Step step{.op = step_of(member).op,
                .type = editor_.value(made_by(member)).options.dtype().toScalarType()};
      for (const PointwiseOperand& operand : step_of(member).operands) {
        step.operands.push_back(operand.id == kNoValue ? Operand{.number = operand.number}
                                                       : Operand{.value = numbers.at(operand.id)});
      }
      formula.steps.push_back(std::move(step));
      numbers.emplace(made_by(member), static_cast<int>(numbers.size()));
    }
    for (ValueId id : boundary.outputs) formula.results.push_back(numbers.at(id));
    return formula;
  }

  Node node_of(const Group& group, const Boundary& boundary) const {
    const Value& output = editor_.value(boundary.outputs[0]);
    return node_with({.kind = Argument::Kind::kTensorList, .ids = boundary.inputs},
                     boundary.outputs, pointwise_operator(), group,
                     {literal_argument(to_text(formula_of(group, boundary))),
                      literal_argument(output.sizes), literal_argument(output.strides)});
  }

  Node node_with(Argument inputs, std::vector<ValueId> results, const c10::OperatorHandle& op,
                 const Group& group, const std::vector<Argument>& further) const {
    std::vector<Argument> arguments = {std::move(inputs)};
    arguments.insert(arguments.end(), further.begin(), further.end());
    Node node =
        make_node(editor_.trace(), op, std::move(arguments), {}, editor_.node(group.back()).scope);
    node.results = {{.ids = std::move(results), .is_list = true}};
    return node;
  }

  bool fuse(const Group& group) {
    if (!can_be_one(group)) return false;
    const Boundary boundary = boundary_of(group);
    if (try_with_sum(group, boundary)) return true;
    if (!is_worth_it(group, boundary)) return false;
    return editor_.fuse(group, node_of(group, boundary));
  }

  // Alone, a node gains where libtorch is slow: costly functions, and inputs in different orders.
  bool is_worth_it(const Group& group, const Boundary& boundary) const {
    if (group.size() > 1) return true;
    const Value& made = editor_.value(boundary.outputs[0]);
    if (elements_of(made) < kWorthAKernel) return false;
    if (is_slow(step_of(group[0]))) return is_of_16_bits(made);
    return step_of(group[0]).op != "cast" &&
           std::any_of(boundary.inputs.begin(), boundary.inputs.end(), [&](ValueId id) {
             return editor_.value(id).sizes == made.sizes &&
                    editor_.value(id).strides != made.strides;
           });
  }

  // ---- sums

  bool try_with_sum(const Group& group, Boundary boundary) {
    for (ValueId& output : boundary.outputs) {
      const RowSum sum = sum_of(output);
      if (sum.position < 0) continue;
      std::swap(output, boundary.outputs[0]);  // the sum is that of the first
      return fuse_with_sum(group, boundary, sum);
    }
    return false;
  }

  RowSum sum_of(ValueId id) const {
    return elements_of(editor_.value(id)) < kWorthAKernel ? RowSum{} : find_row_sum(editor_, id);
  }

  bool fuse_with_sum(const Group& group, const Boundary& boundary, const RowSum& sum) {
    const ValueId summed = boundary.outputs[0];
    const ValueId sums = result_at(editor_.node(sum.position), 0);
    const Value output = editor_.value(summed), result = editor_.value(sums);  // values may move
    std::vector<ValueId> results = boundary.outputs;
    results.push_back(sums);
    Node node = node_with(
        {.kind = Argument::Kind::kTensorList, .ids = boundary.inputs}, std::move(results),
        pointwise_sum_operator(), group,
        {tensor_argument(counters_.in(editor_, output.options.device())),
         literal_argument(to_text(formula_of(group, boundary))), literal_argument(output.sizes),
         literal_argument(output.strides), literal_argument(sum.columns),
         literal_argument(static_cast<int64_t>(result.options.dtype().toScalarType())),
         literal_argument(result.sizes)});
    return fuse_with_row_sum(editor_, group, summed, sum, std::move(node));
  }

  TraceEditor editor_;
  std::unordered_map<ValueId, PointwiseNode> candidates_;  // by what they make
  std::unordered_set<ValueId> tried_;
  Counters counters_;
};

}  // namespace

int fuse_pointwise(Trace& trace, c10::DeviceType device) {
  return PointwiseFusion(trace, device).run();
}

}  // namespace tensorpack::cuda
