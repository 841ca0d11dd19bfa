// SPDX-License-Identifier: Apache-2.0
// Models of many kinds, small, to hold executors and optimizers to the same numbers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/tensor_spec.h"

namespace tensorpack {

/// A loss, and a regular expression for the variables it trains.
struct ZooLoss {
  at::Tensor value = {};
  std::string variables = {};
};

/// A model as plain functions over tensors and get_variable().
struct ZooModel {
  std::string name = {};
  std::vector<TensorSpec> inputs = {};
  std::function<std::vector<ZooLoss>(const std::vector<at::Tensor>&)> build = {};
  /// A batch that depends on the seed alone.
  std::function<std::vector<at::Tensor>(uint64_t seed)> make_batch = {};
};

enum class ZooOptimizer { kSgd, kMomentum, kAdam };
std::string to_string(ZooOptimizer optimizer);

/// All of them.
const std::vector<ZooModel>& zoo();

/// Defines one training step of the model: losses ("loss0" ...), gradients, update.
Op define_training(Graph& graph, const ZooModel& model, ZooOptimizer optimizer);

}  // namespace tensorpack
