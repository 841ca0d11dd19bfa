// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/optimizer.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <mutex>
#include <set>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/foreign_leaves.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::string name_in(const std::string& scope, const std::string& name) {
  return scope.empty() ? name : scope + "/" + name;
}

// Disjoint sets of variables. Those of a set were always updated together.
class CountedSets {
 public:
  struct Part {
    size_t set = 0;
    std::optional<size_t> split_from = {};  // the set its variables were in so far
  };

  // The sets that an update of these variables consists of. A set that is updated in part is split,
  // unless the graph is final: then it stays whole.
  std::vector<Part> add(const Gradients& gradients, bool is_final) {
    std::set<const Variable*> rest;
    for (const Gradient& gradient : gradients) rest.insert(gradient.variable);
    std::vector<Part> parts;
    const size_t known = sets_.size();
    for (size_t i = 0; i < known; ++i) {
      std::set<const Variable*> common;
      std::set_intersection(rest.begin(), rest.end(), sets_[i].begin(), sets_[i].end(),
                            std::inserter(common, common.end()));
      if (common.empty()) continue;
      for (const Variable* variable : common) rest.erase(variable);
      if (is_final || common.size() == sets_[i].size()) {
        parts.push_back({i});
      } else {
        for (const Variable* variable : common) sets_[i].erase(variable);
        sets_.push_back(std::move(common));
        parts.push_back({sets_.size() - 1, i});
      }
    }
    if (!rest.empty()) {
      sets_.push_back(std::move(rest));
      parts.push_back({sets_.size() - 1});
    }
    return parts;
  }

  Gradients in_set(size_t set, const Gradients& gradients) const {
    Gradients found;
    for (const Gradient& gradient : gradients) {
      if (sets_[set].contains(gradient.variable)) found.push_back(gradient);
    }
    return found;
  }

 private:
  std::vector<std::set<const Variable*>> sets_;
};

// Of the optimizers of a graph, by the name of the first counter. Towers may be called at once.
struct Counters {
  std::mutex mutex = {};
  std::map<std::string, CountedSets> of = {};
};

std::vector<at::Tensor> differentiate(const at::Tensor& cost,
                                      const std::vector<at::Tensor>& tensors, bool keep_history) {
  try {
    return torch::autograd::grad({cost}, tensors, {}, /*retain_graph=*/keep_history,
                                 /*create_graph=*/false, /*allow_unused=*/true);
  } catch (const std::exception& error) {
    TP_CHECK(
        std::string_view(error.what()).find("a second time") == std::string_view::npos, "minimize",
        "the forward pass was differentiated before, and given back. A tower function calls no "
        ".backward(): it returns the cost, and the trainer does the rest. Of several costs, "
        "compute the gradients of all first, with compute_gradients(), and then "
        "apply_gradients() each.");
    throw;
  }
}

// Whether the call in progress has used the variable in freeze_variables(), and expects no
// gradient.
bool is_frozen(const std::string& name) {
  const CallScope* call = CallScope::current();
  if (call == nullptr) return false;
  const auto& frozen = call->collection(Collection::kFrozenVariables);
  return std::any_of(frozen.begin(), frozen.end(),
                     [&](const auto& entry) { return entry.first == name; });
}

// Of this tower.
Gradients local_gradients(const at::Tensor& cost, const std::vector<Variable*>& variables,
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
  warn_of_foreign_leaves(cost);
  std::vector<at::Tensor> tensors;
  for (const Variable* variable : variables) {
    TP_CHECK(
        variable->tensor.requires_grad(), "minimize",
        "the trainable variable '{}' does not require gradients: something has switched them "
        "off, as requires_grad_(false) does. To freeze a layer, open freeze_variables() around "
        "it, or pass minimize() the variables to train.",
        variable->name);
    tensors.push_back(variable->tensor);
  }
  const std::vector<at::Tensor> values = differentiate(cost, tensors, keep_history);

  Gradients gradients;
  std::vector<std::string> without;
  for (size_t i = 0; i < variables.size(); ++i) {
    if (values[i].defined()) {
      gradients.push_back({variables[i], values[i], /*is_local=*/true});
    } else {
      without.push_back(variables[i]->tower_free_name());
    }
  }
  TP_CHECK(!gradients.empty(), "minimize",
           "the cost depends on none of the given variables: {}. Compute it from them.",
           join(without, ", "));
  std::erase_if(without, is_frozen);
  if (!without.empty()) {
    logging::warning_once("Without a gradient, {} will not change: {}.",
                          counted(std::ssize(without), "trainable variable"), join(without, ", "));
  }
  return gradients;
}

}  // namespace

Gradients averaged(Gradients gradients, const at::Tensor& is_due) {
  const std::vector<at::Tensor> averages = average_over_towers(values_of(gradients), is_due);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i].value = averages[i];
    gradients[i].is_local = false;
  }
  return gradients;
}

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

void Optimizer::apply_gradients(const Gradients& gradients) {
  const CallScope* call = CallScope::current();
  if (call == nullptr || call->options().updates != VariableUpdates::kNone) update(gradients);
}

at::Tensor Optimizer::get_slot(const Variable& variable, const std::string& slot,
                               Initializer init) {
  Graph& graph = CallScope::current_or_throw("optimizer").graph();
  if (Variable* found = graph.variables().find(variable.name + "/" + slot)) return found->tensor;
  return graph
      .create_variable(variable.tower_free_name() + "/" + slot, variable.tensor.sizes(),
                       {.init = std::move(init),
                        .role = VariableRole::kGlobal,
                        .dtype = variable.tensor.scalar_type(),
                        .channels_last = !variable.tensor.is_contiguous()},
                       variable.tensor.device(), variable.tower_prefix)
      .tensor;
}

at::Tensor Optimizer::own_scalar(const std::string& scope, const std::string& name,
                                 double first_value, c10::ScalarType dtype,
                                 std::optional<c10::Device> device) const {
  const std::string scoped = name_in(scope, name);
  CallScope& call = CallScope::current_or_throw("optimizer");
  const std::string& prefix = call.options().variable_prefix;
  if (device && call.graph().variables().find(prefix + scoped) == nullptr) {
    call.graph().create_variable(
        scoped, {},
        {.init = init::constant(first_value), .role = VariableRole::kGlobal, .dtype = dtype},
        *device, prefix);
  }
  const at::Tensor scalar = get_scalar_variable(scoped, first_value, dtype);
  Variable& variable = call.graph().variables().at(prefix + scoped);
  if (variable.owner == nullptr) variable.owner = this;
  TP_CHECK(
      variable.owner == this, "optimizer",
      "two optimizers of this graph would share the variable '{}'. Give one of them a scope of "
      "its own, for example Adam({{.lr = 1e-3, .scope = \"gen\"}}).",
      scoped);
  return scalar;
}

std::vector<Optimizer::Counted> Optimizer::counted(const std::string& scope,
                                                   const std::string& name,
                                                   const Gradients& gradients,
                                                   c10::ScalarType dtype,
                                                   std::optional<c10::Device> device) const {
  const CallScope& call = CallScope::current_or_throw("optimizer");
  const auto counter = [&](size_t index) {
    const std::string numbered = index == 0 ? name : name + "_" + std::to_string(index);
    return own_scalar(scope, numbered, 0, dtype, device);
  };
  auto& counters = call.graph().attached<Counters>();
  const std::lock_guard lock(counters.mutex);
  CountedSets& sets = counters.of[call.options().variable_prefix + name_in(scope, name)];
  std::vector<Counted> found;
  for (const auto& [index, split_from] : sets.add(gradients, call.graph().is_final())) {
    Counted part{.count = counter(index), .gradients = sets.in_set(index, gradients)};
    if (split_from) part.count.copy_(counter(*split_from));
    found.push_back(std::move(part));
  }
  return found;
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
  return averaged(local_gradients(cost, variables, keep_history));
}

void minimize(Optimizer& optimizer, const at::Tensor& cost,
              const std::vector<Variable*>& variables) {
  // A cost that is no scalar is compute_gradients()'s to complain about.
  const bool is_scalar = cost.defined() && cost.numel() == 1;
  Gradients gradients = local_gradients(is_scalar ? optimizer.scale_cost(cost) : cost, variables,
                                        /*keep_history=*/false);
  const CallScope& call = CallScope::current_or_throw("minimize");
  const bool is_on_its_own = call.options().updates == VariableUpdates::kOwn;
  at::NoGradGuard no_grad;
  if (!(is_on_its_own && optimizer.averages_gradients()))
    gradients = averaged(std::move(gradients));
  optimizer.apply_gradients(gradients);
}

void minimize(Optimizer& optimizer, const at::Tensor& cost, const std::string& regex) {
  minimize(optimizer, cost, CallScope::current_or_throw("minimize").trainable(regex));
}

}  // namespace tensorpack
