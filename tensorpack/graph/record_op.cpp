// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/record_op.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tensorpack/graph/operator_facts.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/results_on_host.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// The same memory, yet nobody else's tensor: two inputs may be one, or one that the function knows
// from elsewhere. A batch is large, and a device may have no room for another.
at::Tensor alias_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense() ||
      tensor.is_conj() || tensor.is_neg()) {
    return tensor.detach().clone();
  }
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([kept = tensor](void*) {})
      .options(tensor.options().requires_grad(false))
      .target_device(tensor.device())
      .make_tensor();
}

// Tensors that require gradients and that are written to, but are no variables of the graph: an
// optimizer of libtorch trains them, and nobody saves them.
void warn_of_foreign_writes(const Op& op, const Trace& trace) {
  std::set<StorageId> written;
  for (const Node& node : trace.nodes) written.insert(node.writes.begin(), node.writes.end());
  std::vector<std::string> shapes;
  for (const Value& value : trace.values) {
    const bool is_parameter = value.kind == ValueKind::kConstant && value.requires_grad;
    if (!is_parameter || !written.contains(value.storage)) continue;
    shapes.push_back(fmt::format("[{}]", fmt::join(value.sizes, ", ")));
  }
  if (shapes.empty()) return;
  logging::warning_once(
      "'{}' changes {} requiring gradients outside the variables of the graph, of shape {}, as an "
      "optimizer of libtorch does: what is learned there is neither saved nor seen by predictors. "
      "A torch::nn module becomes part of the graph by adopt(); train it with an "
      "optimizer of this library.",
      op.name(), counted(std::ssize(shapes), "tensor"), join(shapes, ", "));
}

// Variables that are written to before an optimizer of ours updates them: one of libtorch trains
// them, too, if the function kept the forward pass for a second differentiation.
void warn_of_second_updates(Graph& graph, const Op& op, const Trace& trace) {
  std::set<StorageId> written, updated;
  for (const Node& node : trace.nodes) {
    const bool is_ours = node.op.operator_name().name.starts_with("tensorpack::");
    for (const StorageId storage : node.writes) {
      if (!is_ours) {
        written.insert(storage);
      } else if (written.contains(storage)) {
        updated.insert(storage);
      }
    }
  }
  std::vector<std::string> names;
  for (const Value& value : trace.values) {
    if (value.kind != ValueKind::kVariable || !updated.contains(value.storage)) continue;
    if (graph.variables().at(value.name).is_trainable()) {
      names.push_back("'" + value.name + "'");
    }
  }
  if (names.empty()) return;
  logging::warning_once(
      "'{}' changes {} before its optimizer does: {}. If an optimizer of libtorch does that, both "
      "train. Leave it out: the tower function returns the cost, and the trainer does the rest.",
      op.name(), counted(std::ssize(names), "variable"), join(names, ", "));
}

int64_t bytes_covered_by(const Value& value) {
  return c10::multiply_integers(value.sizes) *
         static_cast<int64_t>(value.options.dtype().itemsize());
}

// Memory that a run of the trace fills before it looks at it holds nothing from one run to the
// next.
bool is_filled_first(const Trace& trace, StorageId storage) {
  const auto value_of = [&](const Argument& argument) -> const Value* {
    for (const ValueId id : argument.ids) {
      if (id == kNoValue) continue;
      const Value& value = trace.values[static_cast<size_t>(id)];
      if (value.storage == storage) return &value;
    }
    return nullptr;
  };
  for (const Node& node : trace.nodes) {
    const auto touching =
        std::count_if(node.arguments.begin(), node.arguments.end(),
                      [&](const Argument& argument) { return value_of(argument) != nullptr; });
    if (touching == 0 || node.is_view) continue;
    const bool fills = touching == 1 && overwrites_first_argument(node.op.operator_name().name);
    const Value* const filled = fills ? value_of(node.arguments[0]) : nullptr;
    return filled != nullptr && bytes_covered_by(*filled) >= filled->storage_bytes;
  }
  return false;
}

// "a tensor of shape [3] (aten::mul_ in scope 'norm')"
std::vector<std::string> unsaved_tensors(const Trace& trace) {
  std::vector<std::string> texts;
  std::set<StorageId> seen;
  for (const Value& value : trace.values) {
    const bool is_captured = value.kind == ValueKind::kConstant && value.varies;
    if (!is_captured || value.requires_grad || !seen.insert(value.storage).second) continue;
    const auto writer = std::find_if(trace.nodes.begin(), trace.nodes.end(), [&](const Node& node) {
      return std::find(node.writes.begin(), node.writes.end(), value.storage) != node.writes.end();
    });
    if (writer == trace.nodes.end() || is_filled_first(trace, value.storage)) continue;
    texts.push_back(fmt::format("a tensor of shape [{}] ({}{})", fmt::join(value.sizes, ", "),
                                writer->op_name(), in_scope(writer->scope)));
  }
  return texts;
}

std::vector<std::string> unsaved_generators(const Graph& graph, const Trace& trace) {
  std::vector<std::string> texts;
  std::vector<at::Generator> known;
  for (const auto& [name, generator] : graph.generators()) known.push_back(generator);
  for (const Node& node : trace.nodes) {
    for (const Argument& argument : node.arguments) {
      if (!argument.literal.isGenerator()) continue;
      const at::Generator generator = argument.literal.toGenerator();
      if (std::find(known.begin(), known.end(), generator) != known.end()) continue;
      known.push_back(generator);
      texts.push_back(fmt::format("a generator ({}{})", node.op_name(), in_scope(node.scope)));
    }
  }
  return texts;
}

bool changes_variables(const Trace& trace) {
  std::set<StorageId> variables;
  for (const Value& value : trace.values) {
    if (value.kind == ValueKind::kVariable) variables.insert(value.storage);
  }
  return std::any_of(trace.nodes.begin(), trace.nodes.end(), [&](const Node& node) {
    return std::any_of(node.writes.begin(), node.writes.end(),
                       [&](StorageId storage) { return variables.contains(storage); });
  });
}

// State of a training that is the user's own: a training that is resumed begins it again.
void warn_of_unsaved_state(const Graph& graph, const Op& op, const Trace& trace) {
  if (!graph.has_checkpoints() || !changes_variables(trace)) return;
  std::vector<std::string> texts = unsaved_tensors(trace);
  for (std::string& text : unsaved_generators(graph, trace)) texts.push_back(std::move(text));
  if (texts.empty()) return;
  logging::warning_once(
      "'{}' changes what no checkpoint has: {}. A training that is resumed begins with other "
      "values. Keep tensors in get_variable(), with VariableRole::kModel or kGlobal. Draw without "
      "a generator of your own: then operators take the graph's. What a callback saves by "
      "save_state() goes on.",
      op.name(), join(texts, ", "));
}

}  // namespace

RecordedOp record_op(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs,
                     bool keep_results) {
  const PhaseLog phase(op.name(), op.device(), "recording");
  RecordedOp recorded;
  for (const at::Tensor& input : inputs) recorded.inputs.push_back(alias_of(input));
  RecordOptions options{.keep_results = keep_results};
  options.inputs = recorded.inputs;
  for (const TensorSpec& spec : op.inputs()) options.input_names.push_back(spec.name);
  for (const Variable& variable : graph.variables().all()) {
    options.variables.emplace_back(variable.name, variable.tensor);
  }
  options.function = [&] {
    return ResultsOnHostScope::run([&] { return op.state().body(recorded.inputs); }, op.device());
  };
  options.kept_layer_outputs = op.state().looked_up;
  options.is_output = [&op](const std::string& name) { return op.has_output(name); };
  recorded.recording = record(options);
  warn_of_foreign_writes(op, recorded.recording.trace);
  warn_of_second_updates(graph, op, recorded.recording.trace);
  warn_of_unsaved_state(graph, op, recorded.recording.trace);
  return recorded;
}

}  // namespace tensorpack
