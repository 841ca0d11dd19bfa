// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/optimizer.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

std::vector<at::Tensor> variables_of(const Gradients& gradients) {
  std::vector<at::Tensor> variables;
  for (const Gradient& gradient : gradients) variables.push_back(gradient.variable->tensor);
  return variables;
}

std::vector<at::Tensor> values_of(const Gradients& gradients) {
  std::vector<at::Tensor> values;
  for (const Gradient& gradient : gradients) values.push_back(gradient.value);
  return values;
}

at::Tensor Optimizer::get_slot(const Variable& variable, const std::string& slot,
                               Initializer init) {
  Graph& graph = CallScope::current_or_throw("optimizer").graph();
  const std::string name = variable.name + "/" + slot;
  if (Variable* found = graph.variables().find(name)) return found->tensor;
  // The slot of a replica's variable is no more saved than the replica is.
  const VariableRole role = variable.is_saved() ? VariableRole::kGlobal : VariableRole::kLocal;
  return graph
      .create_variable(name, variable.tensor.sizes(),
                       {.init = std::move(init),
                        .role = role,
                        .dtype = variable.tensor.scalar_type(),
                        .channels_last = !variable.tensor.is_contiguous()},
                       variable.tensor.device())
      .tensor;
}

std::vector<at::Tensor> Optimizer::get_slots(const Gradients& gradients, const std::string& slot,
                                             const Initializer& init) {
  std::vector<at::Tensor> slots;
  for (const Gradient& gradient : gradients) {
    slots.push_back(get_slot(*gradient.variable, slot, init));
  }
  return slots;
}

Gradients compute_gradients(const at::Tensor& cost, const std::vector<Variable*>& variables,
                            bool keep_history) {
  TP_CHECK(cost.defined() && cost.numel() == 1, "minimize",
           "the cost must be a scalar, got a tensor of shape [{}]. Reduce it, for example with "
           ".mean().",
           cost.defined() ? fmt::format("{}", fmt::join(cost.sizes(), ", ")) : "undefined");
  TP_CHECK(!variables.empty(), "minimize",
           "there is no trainable variable. Create some with a layer or get_variable().");
  TP_CHECK(cost.requires_grad(), "minimize",
           "the cost depends on no trainable variable. Do not detach it, and compute it from the "
           "model's output.");
  std::vector<at::Tensor> tensors;
  for (const Variable* variable : variables) tensors.push_back(variable->tensor);
  const std::vector<at::Tensor> values =
      torch::autograd::grad({cost}, tensors, {}, /*retain_graph=*/keep_history,
                            /*create_graph=*/false, /*allow_unused=*/true);

  Gradients gradients;
  std::vector<std::string> without;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (values[i].defined()) {
      gradients.push_back({variables[i], values[i]});
    } else {
      without.push_back(variables[i]->name);
    }
  }
  TP_CHECK(!gradients.empty(), "minimize",
           "the cost depends on none of the {} given variables: {}. Compute it from them.",
           variables.size(), join(without, ", "));
  if (!without.empty()) {
    log::warning_once("{} trainable variables have no gradient and will not change: {}.",
                      without.size(), join(without, ", "));
  }
  return gradients;
}

void minimize(Optimizer& optimizer, const at::Tensor& cost,
              const std::vector<Variable*>& variables) {
  // A cost that is no scalar is compute_gradients()'s to complain about.
  const bool is_scalar = cost.defined() && cost.numel() == 1;
  const Gradients gradients =
      compute_gradients(is_scalar ? optimizer.scale_cost(cost) : cost, variables,
                        /*keep_history=*/false);
  at::NoGradGuard no_grad;
  optimizer.apply_gradients(gradients);
}

}  // namespace tensorpack
