// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/regularize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

at::Tensor zero_cost() {
  const CallScope& call = CallScope::current_or_throw("regularize_cost");
  return at::zeros({}, at::TensorOptions(call.options().device));
}

at::Tensor sum_of(const std::vector<at::Tensor>& costs) {
  at::Tensor total = costs.empty() ? zero_cost() : costs.front();
  for (size_t i = 1; i < costs.size(); ++i) total = total + costs[i];
  return total;
}

}  // namespace

Regularizer l1_regularizer(double scale) {
  return [scale](const at::Tensor& weight) { return weight.abs().sum() * scale; };
}

Regularizer l2_regularizer(double scale) {
  return [scale](const at::Tensor& weight) { return weight.square().sum() * (0.5 * scale); };
}

at::Tensor regularize_cost(const std::string& regex, const Regularizer& func,
                           const std::string& name) {
  CallScope& call = CallScope::current_or_throw("regularize_cost");
  TP_CHECK(static_cast<bool>(func), "regularize_cost",
           "there is no function. Pass one, for example l2_regularizer(1e-4).");
  std::vector<at::Tensor> costs;
  std::vector<std::string> names;
  if (is_training()) {
    const std::string& tower = call.options().variable_prefix;
    for (const Variable* variable : call.graph().variables().trainable(regex, tower)) {
      const at::Tensor cost = func(variable->tensor);
      TP_CHECK(cost.defined() && cost.dim() == 0, "regularize_cost",
               "the function gave no scalar for '{}'. Reduce it, for example with .sum().",
               variable->name);
      costs.push_back(cost);
      names.push_back(variable->tower_free_name());
    }
    if (names.empty()) {
      logging::warning_once("regularize_cost() found no trainable variable that matches '{}'.",
                            regex);
    } else {
      // A tower function is called many times; its user needs the list once.
      logging::info_once("regularize_cost() applies to {} by '{}': {}.",
                         counted(std::ssize(names), "variable"), regex, join(names));
    }
  }
  return named(name, sum_of(costs));
}

at::Tensor regularize_cost_from_collection(const std::string& name) {
  const CallScope& call = CallScope::current_or_throw("regularize_cost_from_collection");
  std::vector<at::Tensor> costs;
  for (const auto& [variable, cost] : call.collection(Collection::kRegularizationLosses)) {
    costs.push_back(cost);
  }
  return named(name, sum_of(costs));
}

void detail::add_regularization(const std::optional<Regularizer>& regularizer,
                                const std::string& name, const at::Tensor& weight) {
  if (!regularizer || !*regularizer || !is_training()) return;
  CallScope& call = CallScope::current_or_throw("regularizer");
  const std::string path = VariableScope::path_of(name + "/Regularizer");
  constexpr Collection kLosses = Collection::kRegularizationLosses;
  const auto& added = call.collection(kLosses);
  const auto shared = std::find_if(added.begin(), added.end(),
                                   [&](const auto& entry) { return entry.first == path; });
  if (shared == added.end()) {
    call.add_to_collection(kLosses, path, (*regularizer)(weight));
  } else if (!shared->second.requires_grad()) {  // of a call that was frozen
    call.replace_in_collection(kLosses, path, (*regularizer)(weight));
  }
}

void detail::add_activity_regularization(const std::optional<Regularizer>& regularizer,
                                         const at::Tensor& output) {
  if (!regularizer || !*regularizer || !is_training()) return;
  CallScope::current_or_throw("activity_regularizer")
      .add_to_collection(Collection::kRegularizationLosses,
                         VariableScope::path_of("ActivityRegularizer"), (*regularizer)(output));
}

}  // namespace tensorpack
