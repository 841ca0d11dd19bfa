// SPDX-License-Identifier: Apache-2.0
// Tiny ops that the tests of this folder run.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack {

using Tensors = std::vector<at::Tensor>;

/// An op over one input "x" of shape [-1, 3].
inline Op define_on_x(Graph& graph, std::function<NamedTensors(const at::Tensor&)> function,
                      const std::string& name = "step") {
  return graph.define({
      .name = name,
      .inputs = {{"x", {-1, 3}}},
      .body =
          [&graph, function = std::move(function)](const Tensors& in) {
            TowerContext tower(graph);
            return function(in[0]);
          },
  });
}

/// One step of linear regression towards zero: "cost" and the variable "W".
inline Op define_regression(Graph& graph) {
  return define_on_x(graph, [](const at::Tensor& x) -> NamedTensors {
    const at::Tensor w = get_variable("W", {3}, init::normal(1));
    const at::Tensor cost = at::mv(x, w).pow(2).mean();
    const at::Tensor gradient = torch::autograd::grad({cost}, {w})[0];
    at::NoGradGuard no_grad;
    w.sub_(gradient * get_scalar_variable("learning_rate", 0.1));
    return {{"cost", cost}, {"gradient", gradient}};
  });
}

inline at::Tensor batch_of(int64_t rows, float first = 1) {
  return at::arange(rows * 3).to(at::kFloat).reshape({rows, 3}) / 10 + first;
}

}  // namespace tensorpack
