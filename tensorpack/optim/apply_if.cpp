// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/apply_if.h"

#include <ATen/ATen.h>

#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/utils/detail/thread_frame.h"

namespace tensorpack::detail {
namespace {

struct ConditionState {
  UpdateConditions* innermost = nullptr;
};

UpdateConditions*& innermost() { return ThreadFrame::current().get<ConditionState>().innermost; }

// Which variables an optimizer of the graph has seen. Towers may be called at once.
struct SeenVariables {
  std::mutex mutex = {};
  std::set<std::pair<const Optimizer*, const Variable*>> pairs = {};
};

bool sees_new_variables(Graph& graph, const Optimizer& optimizer, const Gradients& gradients) {
  auto& seen = graph.attached<SeenVariables>();
  const std::lock_guard lock(seen.mutex);
  bool any = false;
  for (const Gradient& gradient : gradients) {
    any |= seen.pairs.emplace(&optimizer, gradient.variable).second;
  }
  return any;
}

}  // namespace

void keep_if(const at::Tensor& condition, const std::function<void()>& function) {
  const CallScope& call = CallScope::current_or_throw("apply_gradients");
  struct Saved {
    at::Tensor tensor;
    at::Tensor copy;
    int64_t version;
  };
  std::vector<Saved> saved;
  for (const Variable& variable : call.graph().variables().all()) {
    if (variable.tower_prefix != call.options().variable_prefix) continue;  // another tower's
    const at::Tensor tensor = variable.tensor.detach();
    saved.push_back({tensor, tensor.clone(), static_cast<int64_t>(tensor._version())});
  }
  function();
  // Copies of variables that were not written are dead code in a recorded program.
  for (Saved& s : saved) {
    if (s.tensor._version() != s.version) {
      s.tensor.copy_(at::where(condition.to(s.tensor.device()), s.tensor, s.copy));
    }
  }
}

void apply_gradients_if(const at::Tensor& condition, Optimizer& optimizer,
                        const Gradients& gradients) {
  Graph& graph = CallScope::current_or_throw("apply_gradients").graph();
  if (sees_new_variables(graph, optimizer, gradients)) {
    StateGuard guard(graph);  // makes the optimizer's own variables, and leaves no other trace
    optimizer.apply_gradients(gradients);
  }
  keep_if(condition, [&] { optimizer.apply_gradients(gradients); });
  std::set<const Variable*> variables;
  for (const Gradient& gradient : gradients) variables.insert(gradient.variable);
  for (UpdateConditions* scope = innermost(); scope != nullptr; scope = scope->outer_) {
    scope->conditions_.push_back({condition, variables});
  }
}

UpdateConditions::UpdateConditions() : outer_(std::exchange(innermost(), this)) {}

UpdateConditions::~UpdateConditions() { innermost() = outer_; }

at::Tensor UpdateConditions::of(const Variable& variable) const {
  at::Tensor all;
  for (const auto& [holds, variables] : conditions_) {
    if (!variables.contains(&variable)) continue;
    all = all.defined() ? all.logical_and(holds.to(all.device())) : holds;
  }
  return all;
}

std::vector<Gradients> UpdateConditions::divide(const Gradients& gradients) const {
  std::map<std::vector<const Condition*>, Gradients> parts;
  for (const Gradient& gradient : gradients) {
    std::vector<const Condition*> own;
    for (const Condition& condition : conditions_) {
      if (condition.variables.contains(gradient.variable)) own.push_back(&condition);
    }
    parts[own].push_back(gradient);
  }
  std::vector<Gradients> divided;
  for (auto& [own, part] : parts) divided.push_back(std::move(part));
  return divided;
}

}  // namespace tensorpack::detail
