// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/detail/needs.h"

#include <set>
#include <vector>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/function_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::detail {
namespace {

std::set<ValueId> values_read(const Trace& trace) {
  std::set<ValueId> read;
  for (const auto& [name, id] : trace.outputs) read.insert(id);
  for (const Node& node : trace.nodes) {
    node.for_each_argument([&](ValueId id) { read.insert(id); });
  }
  return read;
}

}  // namespace

Needs::Needs(Graph& graph, const Op& op) : op_(op) {
  std::vector<at::Tensor> trial;
  for (const TensorSpec& spec : op.inputs()) trial.push_back(spec.trial_value(op.device()));
  const FunctionScope scope(Precision::kFloat32);
  const StateGuard guard(graph, {op.state().generator});
  try {
    trace_ = record_op(graph, op, trial).recording.trace;
  } catch (const Error& error) {  // a model for the eager executor
    logging::debug("What '{}' needs was not checked: {}", op.name(), error.what());
  }
}

bool Needs::needs_input(const std::string& output, const std::string& input) const {
  if (op_.has_input(output)) return output == input;
  const Trace trace = cut_to(output);
  const std::set<ValueId> read = values_read(trace);
  for (const ValueId id : trace.inputs) {
    if (trace.values[static_cast<size_t>(id)].name == input) return read.contains(id);
  }
  return false;
}

std::set<std::string> Needs::variables_of(const std::string& output) const {
  if (op_.has_input(output)) return {};
  if (!trace_->outputs.contains(output)) return {output};
  const Trace trace = cut_to(output);
  std::set<std::string> names;
  for (const ValueId id : values_read(trace)) {
    const Value& value = trace.values[static_cast<size_t>(id)];
    if (value.kind == ValueKind::kVariable) names.insert(value.name);
  }
  return names;
}

Trace Needs::cut_to(const std::string& output) const {
  if (!trace_->outputs.contains(output)) return {};
  Trace trace = *trace_;
  for (Node& node : trace.nodes) node.is_random = false;  // draws of others are no need of its own
  eliminate_dead_code(trace, {output});
  return trace;
}

}  // namespace tensorpack::detail
