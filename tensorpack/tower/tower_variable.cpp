// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_variable.h"

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/variable_checks.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack {

at::Tensor get_tower_variable(const std::string& name, at::IntArrayRef shape,
                              TowerVariableOptions options) {
  check_variable_name("get_tower_variable", name);
  TowerContext& tower = get_current_tower_context();
  const std::string path = VariableScope::path_of(name);
  TP_CHECK(tower.is_training(), "get_tower_variable",
           "'{}' belongs to a training tower, and the model uses it to predict. Ask is_training() "
           "first, or use get_variable() with VariableRole::kModel.",
           path);
  tower.call().use_variable(path);
  const std::string own_name = tower_variable_name(tower.index(), path);
  Variable* variable = tower.graph().variables().find(own_name);
  if (variable == nullptr) {
    variable = &tower.graph().create_variable(
        own_name, shape,
        {.init = std::move(options.init), .role = VariableRole::kLocal, .dtype = options.dtype},
        tower.device());
  }
  check_same_variable(*variable, path, shape, options.dtype);
  return variable->tensor;
}

std::string tower_variable_name(int tower, const std::string& name) {
  return "tower" + std::to_string(tower) + "/" + name;
}

// No user can choose a name with that word in it.
bool is_tower_variable(const Variable& variable) {
  return !variable.is_replica() && variable.name.starts_with("tower");
}

}  // namespace tensorpack
