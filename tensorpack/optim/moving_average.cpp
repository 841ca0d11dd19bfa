// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/moving_average.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/optim/apply_if.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/utils/error.h"

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
  const at::Tensor is_updated = conditions.all();
  for (auto& [step, part] : counted(options_.scope, "MovingAverage/step", gradients)) {
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
        CallScope& call = CallScope::current_or_throw("use_moving_averages");
        const at::Tensor value = next(options);
        const Variable* average =
            call.graph().variables().find(call.options().variable_prefix + name + kSuffix);
        return average == nullptr ? value : average->tensor;
      });
}

}  // namespace tensorpack
