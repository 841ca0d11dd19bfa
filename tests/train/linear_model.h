// SPDX-License-Identifier: Apache-2.0
// The smallest model that can be trained.
#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/train/model.h"

namespace tensorpack {

inline std::vector<TensorSpec> linear_inputs() { return {{"x", {-1}}, {"y", {-1}}}; }

/// Fits y = w x + b; names `prediction` and `cost`.
inline at::Tensor linear_cost(const at::Tensor& x, const at::Tensor& y) {
  const at::Tensor prediction =
      named("prediction", get_variable("w", {}) * x + get_variable("b", {}));
  return named("cost", (prediction - y).square().mean());
}

inline Model linear_model() {
  return {.inputs = linear_inputs(), .build_graph = linear_cost, .optimizer = SGD({.lr = 0.1})};
}

/// Four batches of two points of y = 2 x + 1.
inline FromList linear_data() {
  std::vector<DataPoint> batches;
  for (int i = 0; i < 4; ++i) {
    const at::Tensor x = at::arange(2 * i, 2 * i + 2, at::kFloat) / 4 - 1;
    batches.push_back({x, 2 * x + 1});
  }
  return FromList(std::move(batches));
}

}  // namespace tensorpack
