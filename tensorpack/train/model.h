// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/tower/tower_func.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// A model: what goes in, how the cost is computed, and how it is minimised.
struct Model {
  std::vector<TensorSpec> inputs = {};
  /// One parameter per input; returns the scalar cost, regularisation included.
  TowerFunc build_graph = {};
  Owned<Optimizer> optimizer = {};
};

}  // namespace tensorpack
