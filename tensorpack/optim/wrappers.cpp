// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/wrappers.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/optim/apply_if.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr const char* kSlot = "AccumGrad";

Owned<Optimizer> checked(Owned<Optimizer> optimizer, const char* where) {
  TP_CHECK(static_cast<bool>(optimizer), where, "there is no optimizer. Pass one.");
  return optimizer;
}

}  // namespace

AccumGradOptimizer::AccumGradOptimizer(Owned<Optimizer> optimizer, int64_t niter,
                                       AccumGradOptions options)
    : optimizer_(checked(std::move(optimizer), "AccumGradOptimizer")),
      niter_(niter),
      options_(std::move(options)) {
  TP_CHECK(niter_ > 0, "AccumGradOptimizer", "niter is {}. Pass 1 or more.", niter_);
}

void AccumGradOptimizer::update(const Gradients& gradients) {
  const bool exchanges = gradients[0].is_local &&
                         CallScope::current_or_throw("AccumGradOptimizer").options().exchanges;
  // Who has to know whether an exchange is due is the host: see Note [Deciding on the host].
  const auto place = exchanges ? std::optional<c10::Device>(c10::kCPU) : std::nullopt;
  for (auto& [step, part] :
       counted(options_.scope, "AccumGrad/step", gradients, at::kLong, place)) {
    accumulate(part, step.add_(1), exchanges);
  }
}

void AccumGradOptimizer::accumulate(const Gradients& gradients, const at::Tensor& step,
                                    bool exchanges) {
  const at::Tensor is_due = step.remainder(niter_).eq(0);
  Gradients sums;
  std::vector<at::Tensor> slots;
  for (const Gradient& gradient : gradients) {
    slots.push_back(get_slot(*gradient.variable, kSlot).add_(gradient.value));
    const double factor = options_.average ? 1.0 / static_cast<double>(niter_) : 1.0;
    sums.push_back({gradient.variable, slots.back() * factor, gradient.is_local});
  }
  if (exchanges) sums = averaged(std::move(sums), is_due);
  detail::apply_gradients_if(is_due, *optimizer_, sums);
  for (at::Tensor& slot : slots) slot.masked_fill_(is_due.to(slot.device()), 0);
}

bool is_accumulated_gradient(const Variable& variable) {
  return variable.role == VariableRole::kGlobal &&
         variable.name.ends_with(std::string("/") + kSlot);
}

HyperParams AccumGradOptimizer::hyper_params() const {
  return detail::with_option(optimizer_->hyper_params(), options_.scope, "accumulated_steps",
                             std::to_string(niter_));
}

PostProcessOptimizer::PostProcessOptimizer(Owned<Optimizer> optimizer, Function function)
    : optimizer_(checked(std::move(optimizer), "PostProcessOptimizer")),
      function_(std::move(function)) {
  TP_CHECK(static_cast<bool>(function_), "PostProcessOptimizer", "there is no function. Pass one.");
}

void PostProcessOptimizer::update(const Gradients& gradients) {
  const detail::UpdateConditions conditions;
  optimizer_->apply_gradients(gradients);
  for (const Gradients& part : conditions.divide(gradients)) {
    const auto process = [&] {
      for (const Gradient& gradient : part) function_(*gradient.variable);
    };
    const at::Tensor is_updated = conditions.of(*part.front().variable);
    is_updated.defined() ? detail::keep_if(is_updated, process) : process();
  }
}

VariableAssignmentOptimizer::VariableAssignmentOptimizer(Owned<Optimizer> optimizer,
                                                         Function function)
    : optimizer_(std::move(optimizer), [function = std::move(function)](Variable& variable) {
        if (std::optional<at::Tensor> value = function(variable)) {
          TP_CHECK(value->sizes() == variable.tensor.sizes(), "VariableAssignmentOptimizer",
                   "the function changed the shape of '{}'. Return a tensor of the same shape.",
                   variable.name);
          variable.tensor.copy_(*value);
        }
      }) {}

void VariableAssignmentOptimizer::update(const Gradients& gradients) {
  optimizer_.apply_gradients(gradients);
}

}  // namespace tensorpack
