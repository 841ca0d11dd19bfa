// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/record_op.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <set>
#include <string>
#include <vector>

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
  log::warning_once(
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
  log::warning_once(
      "'{}' changes {} before its optimizer does: {}. If an optimizer of libtorch does that, both "
      "train. Leave it out: the tower function returns the cost, and the trainer does the rest.",
      op.name(), counted(std::ssize(names), "variable"), join(names, ", "));
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
  return recorded;
}

}  // namespace tensorpack
