// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/graph.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/loss_scale.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack {
namespace {

TEST(SeveralOptimizersTest, ScopeKeepsTheirVariablesApart) {
  Graph graph;
  TowerContext tower(graph);
  at::NoGradGuard no_grad;
  get_variable("w", {});
  const Gradients gradients = {{&graph.variables().at("w"), at::ones({})}};
  Adam({.lr = 0.1, .scope = "gen"}).apply_gradients(gradients);
  SGD({.lr = 0.2, .scope = "discrim"}).apply_gradients(gradients);
  EXPECT_FLOAT_EQ(graph.variables().at("gen/learning_rate").tensor.item<float>(), 0.1F);
  EXPECT_EQ(graph.variables().at("gen/Adam/step").tensor.item<double>(), 1);
  EXPECT_FLOAT_EQ(graph.variables().at("discrim/learning_rate").tensor.item<float>(), 0.2F);
  EXPECT_EQ(graph.variables().find("learning_rate"), nullptr);
}

TEST(SeveralOptimizersTest, ScopeKeepsTheCountersOfWrappersApart) {
  Graph graph;
  TowerContext tower(graph);
  get_variable("w", {});
  LossScaleOptimizer optimizer(MovingAverageOptimizer(SGD(), {.scope = "gen"}), {.scope = "gen"});
  minimize(optimizer, graph.variables().at("w").tensor * 2, graph.variables().trainable());
  EXPECT_EQ(graph.variables().at("gen/loss_scale/good_steps").tensor.item<int64_t>(), 1);
  EXPECT_EQ(graph.variables().at("gen/MovingAverage/step").tensor.item<double>(), 1);
}

}  // namespace
}  // namespace tensorpack
