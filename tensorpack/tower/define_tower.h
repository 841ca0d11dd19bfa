// SPDX-License-Identifier: Apache-2.0
// The one place where towers are made, for training and for prediction.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tensorpack/tower/tower_handle.h"

namespace tensorpack {

/// What else an op does after the tower function, such as minimising its cost.
using TowerBody = std::function<void(TowerContext& tower)>;

struct TowerDefinition {
  /// Of the op; that of the tower when empty.
  std::string op_name = {};
  std::vector<TensorSpec> inputs = {};
  TowerFunc function = {};
  TowerBody body = {};
  /// Empty when inputs are fed to every run.
  InputFeeder feeder = {};
};

/// An op that calls the tower function, in a tower with these options, and then the body. In
/// prediction nothing is differentiated. The VariableScope that is open now is open around every
/// call of the function, so that all names in it begin with that scope. What the definition holds
/// lives as long as the op: it must not refer to things that may go before the graph does.
TowerHandle define_tower(Graph& graph, TowerOptions options, TowerDefinition definition);

}  // namespace tensorpack
