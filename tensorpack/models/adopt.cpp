// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/adopt.h"

#include <torch/nn/module.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::detail {
namespace {

using torch::nn::Module;

// What becomes a variable, by name: "0.weight" is "0/weight".
struct Member {
  std::string name = {};
  at::Tensor tensor = {};
  VariableRole role = VariableRole::kTrainable;
};

std::vector<Member> members_of(const Module& module) {
  std::vector<Member> members;
  const auto add = [&](std::string name, const at::Tensor& tensor, VariableRole role) {
    std::replace(name.begin(), name.end(), '.', '/');
    members.push_back({std::move(name), tensor, role});
  };
  for (const auto& item : module.named_parameters()) {
    if (!item.value().defined()) continue;
    add(item.key(), item.value(),
        item.value().requires_grad() ? VariableRole::kTrainable : VariableRole::kModel);
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) add(item.key(), item.value(), VariableRole::kModel);
  }
  return members;
}

// The modules of a graph, by their paths with the prefix of the towers that call them.
struct AdoptedModules {
  std::map<std::string, std::shared_ptr<Module>> by_path = {};

  bool contain(const std::shared_ptr<Module>& module) const {
    return std::any_of(by_path.begin(), by_path.end(),
                       [&](const auto& entry) { return entry.second == module; });
  }
};

// Libtorch clones modules that derive from torch::nn::Cloneable.
std::shared_ptr<Module> clone_of(const Module& module, const std::string& path,
                                 c10::Device device) {
  try {
    return module.clone(device);
  } catch (const c10::Error& error) {
    throw make_error(
        "adopt",
        "a tower with variables of its own needs a copy of the module '{}', and libtorch makes "
        "none. Make it in the tower function, which every tower calls: adopt(name, "
        "std::make_shared<Net>()). Or share the variables between towers "
        "(SyncMultiGPUTrainerParameterServer), or train in several processes "
        "(DistributedTrainer). By libtorch: {}",
        path, error.what_without_backtrace());
  }
}

// A replica begins with what the first tower has.
void begin_as_original(const Graph& graph, const Variable& variable) {
  if (!variable.is_replica()) return;
  const Variable* original = graph.variables().find(variable.tower_free_name());
  if (original == nullptr) return;
  const Unwatched unwatched;
  const at::NoGradGuard no_grad;
  variable.tensor.copy_(original->tensor);
}

// The module that towers with this prefix call, made a part of the graph by the first of them.
std::shared_ptr<Module> module_of_tower(CallScope& call, const std::string& path,
                                        const std::shared_ptr<Module>& module) {
  Graph& graph = call.graph();
  const std::string& prefix = call.options().variable_prefix;
  auto& modules = graph.attached<AdoptedModules>();
  if (const auto& kept = modules.by_path[prefix + path]) return kept;
  std::shared_ptr<Module> own = module;
  // One that the function has just made needs no copy.
  if (!prefix.empty() && modules.contain(module)) {
    own = clone_of(*module, path, call.options().device);
  } else {
    own->to(call.options().device);
  }
  for (const Member& member : members_of(*own)) {
    begin_as_original(
        graph, graph.adopt_variable(path + "/" + member.name, member.tensor, member.role, prefix));
  }
  return modules.by_path[prefix + path] = own;
}

}  // namespace

std::shared_ptr<Module> adopt_module(const std::string& name, std::shared_ptr<Module> module) {
  CallScope& call = CallScope::current_or_throw("adopt");
  TP_CHECK(module != nullptr, "adopt", "the module '{}' is empty. Make it first.", name);
  const VariableScope scope(name);
  const std::string& path = VariableScope::current_path();
  const std::shared_ptr<Module> own = module_of_tower(call, path, module);
  for (const Member& member : members_of(*own)) call.use_variable(path + "/" + member.name);
  if (VariableGetterScope::is_open()) {
    logging::warning_once(
        "Scopes that replace variables (freeze_variables(), use_moving_averages(), "
        "remap_variables()) do not reach those of the module '{}'. To freeze it, switch off "
        "requires_grad of its parameters before adopt().",
        path);
  }
  own->train(is_training());
  return own;
}

}  // namespace tensorpack::detail
