// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/online_predictor.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/function_scope.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::vector<std::string> names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string> names;
  names.reserve(specs.size());
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return names;
}

// Whether what is left of a trace after dead code is gone reads input number `index`.
bool reads_input(const Trace& trace, size_t index) {
  const ValueId input = trace.inputs[index];
  bool found = std::any_of(trace.outputs.begin(), trace.outputs.end(),
                           [&](const auto& output) { return output.second == input; });
  for (const Node& node : trace.nodes) {
    node.for_each_argument([&](ValueId id) { found |= id == input; });
  }
  return found;
}

// The model is recorded on zeros and cut down to each output: what still reads an input needs it.
void check_left_out(Graph& graph, const Op& op, const PredictorOptions& options) {
  std::vector<at::Tensor> trial;
  for (const TensorSpec& spec : op.inputs()) trial.push_back(spec.trial_value(op.device()));
  const FunctionScope scope(Precision::kFloat32);
  const StateGuard guard(graph, {op.state().generator});
  Trace recorded;
  try {
    recorded = record_op(graph, op, trial).recording.trace;
  } catch (const Error& error) {
    log::debug("What '{}' needs was not checked: {}", op.name(), error.what());
    return;  // a model for the eager executor
  }
  for (const std::string& output : options.output_names) {
    Trace trace = recorded;
    if (trace.outputs.contains(output)) eliminate_dead_code(trace, {output});
    for (size_t i = 0; i < op.inputs().size(); ++i) {
      const std::string& input = op.inputs()[i].name;
      if (contains(options.input_names, input)) continue;
      TP_CHECK(output != input && (!recorded.outputs.contains(output) || !reads_input(trace, i)),
               "predictor",
               "the output '{}' depends on the input '{}', which is not among the predictor's "
               "inputs ({}). Add it.",
               output, input, join(options.input_names, ", "));
    }
  }
}

// As the other inputs are: an open first dimension is the batch.
at::Tensor zeros_for(const TensorSpec& spec, int64_t batch, c10::Device device) {
  at::Tensor zeros = spec.trial_value(device);
  if (batch < 0 || spec.shape.empty() || spec.shape[0] != -1) return zeros;
  Shape shape = zeros.sizes().vec();
  shape[0] = batch;
  return zeros.new_zeros(shape);
}

}  // namespace

OnlinePredictor::OnlinePredictor(Graph& graph, TowerHandle tower, PredictorOptions options,
                                 std::function<Session&()> session)
    : tower_(std::move(tower)), options_(std::move(options)), session_(std::move(session)) {
  const Op& op = tower_.op();
  const std::vector<std::string> inputs = names_of(op.inputs());
  if (options_.input_names.empty()) options_.input_names = inputs;
  TP_CHECK(!options_.output_names.empty(), "predictor",
           "there are no outputs. Name at least one tensor of the model.");
  for (const std::string& name : options_.input_names) {
    TP_CHECK(contains(inputs, name), "predictor", "no input named '{}'. {}", name,
             did_you_mean(name, inputs));
    TP_CHECK(std::count(options_.input_names.begin(), options_.input_names.end(), name) == 1,
             "predictor", "the input '{}' is named twice. Name each input once.", name);
  }
  for (const std::string& name : options_.output_names) {
    tower_.check_tensor(name, "predictor '" + op.name() + "'");
  }
  for (const TensorSpec& spec : op.inputs()) {
    if (!contains(options_.input_names, spec.name)) left_out_.push_back(spec);
  }
  if (!left_out_.empty()) check_left_out(graph, op, options_);
}

std::vector<at::Tensor> OnlinePredictor::operator()(const std::vector<at::Tensor>& inputs) const {
  TP_CHECK(inputs.size() == options_.input_names.size(), "predictor",
           "it takes {} ({}) and was called with {}. Pass one per input.",
           counted(std::ssize(options_.input_names), "tensor"), join(options_.input_names, ", "),
           inputs.size());
  Session& session = session_();
  Feeds feeds;
  int64_t batch = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (batch < 0 && inputs[i].defined() && inputs[i].dim() > 0) batch = inputs[i].size(0);
    feeds.emplace(options_.input_names[i], inputs[i]);
  }
  for (const TensorSpec& spec : left_out_) {
    feeds.emplace(spec.name, zeros_for(spec, batch, tower_.op().device()));
  }
  return session.run(tower_.op(), options_.output_names, feeds);
}

}  // namespace tensorpack
