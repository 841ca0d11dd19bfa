// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/ATen.h>

#include "examples/models/transformer.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"

namespace tensorpack::cuda {

/// A step of a small Transformer. Both must outlive it.
inline Op transformer_op(Graph& graph, Optimizer& optimizer) {
  return graph.define({
      .name = "train",
      .inputs = {{"words", {2, 32}, at::kLong}, {"next", {2, 32}, at::kLong}},
      .body = [&graph, &optimizer](const std::vector<at::Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const TowerFunc network = [](const at::Tensor& words) {
          return examples::transformer(words, {.vocabulary = 1024, .layers = 2, .dropout = 0});
        };
        const at::Tensor scores = network({in[0]})[0].flatten(0, 1).to(at::kFloat);
        const at::Tensor cost = at::cross_entropy_loss(scores, in[1].flatten());
        minimize(optimizer, cost, graph.variables().trainable());
        return {{"cost", cost}};
      },
  });
}

}  // namespace tensorpack::cuda
