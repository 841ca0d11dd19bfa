// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/moving_average.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/optim/apply_if.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

const std::string kSuffix = "/MovingAverage";

at::Tensor average_of(Graph& graph, const Variable& variable) {
  if (Variable* found = graph.variables().find(variable.name + kSuffix)) return found->tensor;
  return graph
      .create_variable(variable.tower_free_name() + kSuffix, variable.tensor.sizes(),
                       {.init = init::from(variable.tensor.detach().cpu()),
                        .role = VariableRole::kModel,
                        .dtype = variable.tensor.scalar_type(),
                        .channels_last = !variable.tensor.is_contiguous()},
                       variable.tensor.device(), variable.tower_prefix)
      .tensor;
}

// Of a graph: the averages that were made because a prediction asked for them.
struct Averages {
  bool are_restored = false;
  std::vector<const Variable*> asked_for = {};
};

bool has_averages(const Graph& graph) {
  const auto& variables = graph.variables().all();
  return std::any_of(variables.begin(), variables.end(),
                     [](const Variable& variable) { return variable.name.ends_with(kSuffix); });
}

// The average that a call uses in place of the variable `name`, or nullptr.
const Variable* find_average(const std::string& name) {
  const CallScope& call = CallScope::current_or_throw("use_moving_averages");
  Graph& graph = call.graph();
  const std::string full_name = call.options().variable_prefix + name;
  if (const Variable* found = graph.variables().find(full_name + kSuffix)) return found;
  // A training calls the function before its optimizer makes the averages.
  if (!call.options().is_prediction) return nullptr;
  auto& averages = graph.attached<Averages>();
  const Variable* variable = graph.variables().find(full_name);
  if (averages.are_restored && variable != nullptr && !graph.is_final()) {
    average_of(graph, *variable);
    averages.asked_for.push_back(graph.variables().find(full_name + kSuffix));
    return averages.asked_for.back();
  }
  TP_CHECK(
      has_averages(graph), "use_moving_averages",
      "no variable has a moving average: the model would predict with the weights themselves. "
      "Put a MovingAverageOptimizer around the optimizer, or leave use_moving_averages() out.");
  logging::info_once("'{}' has no moving average, and is used itself: no optimizer updates it.",
                     name);
  return nullptr;
}

}  // namespace

MovingAverageOptimizer::MovingAverageOptimizer(Owned<Optimizer> optimizer,
                                               MovingAverageOptions options)
    : optimizer_(std::move(optimizer)), options_(std::move(options)) {
  TP_CHECK(static_cast<bool>(optimizer_), "MovingAverageOptimizer",
           "there is no optimizer. Pass one.");
  TP_CHECK(options_.decay >= 0 && options_.decay < 1, "MovingAverageOptimizer",
           "the decay is {}. It must lie in [0, 1).", options_.decay);
}

void MovingAverageOptimizer::update(const Gradients& gradients) {
  Graph& graph = CallScope::current_or_throw("MovingAverageOptimizer").graph();
  // Averages begin with the first values, not with what an update of trial inputs makes of them.
  for (const Gradient& gradient : gradients) average_of(graph, *gradient.variable);
  const detail::UpdateConditions conditions;
  optimizer_->apply_gradients(gradients);
  for (auto& [step, part] : counted(options_.scope, "MovingAverage/step", gradients)) {
    // What is counted together is updated together.
    const at::Tensor is_updated = conditions.of(*part.front().variable);
    is_updated.defined() ? step.add_(is_updated.to(step.options())) : step.add_(1);
    // 1 / step while that is more: the plain mean so far.
    at::Tensor take = step.reciprocal().clamp_min(1 - options_.decay);
    if (is_updated.defined())
      take = take.masked_fill(is_updated.logical_not().to(take.device()), 0);
    for (const Gradient& gradient : part) {
      const at::Tensor& value = gradient.variable->tensor;
      average_of(graph, *gradient.variable)
          .lerp_(value.detach(), take.to(value.options().requires_grad(false)));
    }
  }
}

HyperParams MovingAverageOptimizer::hyper_params() const {
  return detail::with_option(optimizer_->hyper_params(), options_.scope, "moving_average_decay",
                             fmt::to_string(options_.decay));
}

VariableGetterScope use_moving_averages() {
  return VariableGetterScope(
      [](const std::string& name, VariableOptions options, const NextGetter& next) {
        const bool is_trainable = options.role == VariableRole::kTrainable;
        const at::Tensor value = next(std::move(options));
        if (!is_trainable) return value;
        const Variable* average = find_average(name);
        return average == nullptr ? value : average->tensor.to(value.device());
      });
}

namespace detail {

void restore_moving_averages(Graph& graph) { graph.attached<Averages>().are_restored = true; }

void complete_moving_averages(Graph& graph, std::set<const Variable*>& without_value) {
  std::vector<std::string> names;
  size_t count = 0;
  for (const Variable* average : graph.attached<Averages>().asked_for) {
    if (average->is_replica()) continue;
    ++count;
    if (!without_value.contains(average)) continue;
    names.push_back(average->name.substr(0, average->name.size() - kSuffix.size()));
  }
  if (names.empty()) return;
  TP_CHECK(
      names.size() < count, "use_moving_averages",
      "what is restored has a moving average of no variable, and the model predicts with those "
      "of {}. Restore what a training with a MovingAverageOptimizer saved, or call "
      "use_moving_averages() only where there are averages.",
      join(names, ", "));
  for (const std::string& name : names) {
    const Variable& original = graph.variables().at(name);
    const Variable& average = graph.variables().at(name + kSuffix);
    average.assign(original.tensor.detach());
    if (!without_value.contains(&original)) without_value.erase(&average);
  }
  logging::info("Without a moving average, {} used as restored: {}.",
                names.size() == 1 ? "1 variable is" : fmt::format("{} variables are", names.size()),
                join(names, ", "));
}

}  // namespace detail

}  // namespace tensorpack
