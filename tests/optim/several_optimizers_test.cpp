// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/loss_scale.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/optim/wrappers.h"
#include "tensorpack/tower/tower_context.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

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

TEST(SeveralOptimizersTest, TwoWithoutAScopeAreAnError) {
  Graph graph;
  TowerContext tower(graph);
  at::NoGradGuard no_grad;
  get_variable("w", {});
  const Gradients gradients = {{&graph.variables().at("w"), at::ones({})}};
  Adam first({.lr = 0.1});
  SGD second({.lr = 0.2});
  first.apply_gradients(gradients);
  first.apply_gradients(gradients);
  EXPECT_ERROR(second.apply_gradients(gradients),
               "[optimizer] two optimizers of this graph would share the variable "
               "'learning_rate'. Give one of them a scope of its own");
}

// What torch::optim::Adam makes of gradients of 1: each step is -lr, whatever the bias of the
// moments, if the updates of each variable are counted by themselves.
TEST(SeveralOptimizersTest, OneOptimizerCountsTheUpdatesOfEachSetOfVariables) {
  Graph graph;
  Adam adam({.lr = 0.1, .epsilon = 0});
  for (int step = 1; step <= 3; ++step) {
    TowerContext tower(graph);
    at::NoGradGuard no_grad;
    for (const char* name : {"discrim", "gen"}) get_variable(name, {}, init::zeros());
    for (const char* name : {"discrim", "gen"}) {
      adam.apply_gradients({{&graph.variables().at(name), at::ones({})}});
      EXPECT_NEAR(graph.variables().at(name).tensor.item<double>(), -0.1 * step, 1e-6) << name;
    }
  }
  EXPECT_EQ(graph.variables().at("Adam/step").tensor.item<double>(), 3);
  EXPECT_EQ(graph.variables().at("Adam/step_1").tensor.item<double>(), 3);
}

TEST(SeveralOptimizersTest, SetsThatOverlapAreCountedVariableByVariable) {
  Graph graph;
  Adam adam({.lr = 0.1, .epsilon = 0});
  TowerContext tower(graph);
  at::NoGradGuard no_grad;
  const auto gradient = [&](const char* name) {
    return Gradient{&graph.variables().at(name), at::ones({})};
  };
  for (const char* name : {"a", "b", "c"}) get_variable(name, {}, init::zeros());
  adam.apply_gradients({gradient("a"), gradient("b")});
  adam.apply_gradients({gradient("b"), gradient("c")});  // b was updated once, c never
  adam.apply_gradients({gradient("a"), gradient("b"), gradient("c")});
  const std::map<std::string, double> updates = {{"a", 2}, {"b", 3}, {"c", 2}};
  for (const auto& [name, count] : updates) {
    EXPECT_NEAR(graph.variables().at(name).tensor.item<double>(), -0.1 * count, 1e-6) << name;
  }
}

TEST(SeveralOptimizersTest, AccumulationIsDueForEachSetByItself) {
  Graph graph;
  AccumGradOptimizer optimizer(SGD({.lr = 1}), 2);
  for (int step = 1; step <= 4; ++step) {
    TowerContext tower(graph);
    at::NoGradGuard no_grad;
    for (const char* name : {"discrim", "gen"}) get_variable(name, {}, init::zeros());
    for (const char* name : {"discrim", "gen"}) {
      optimizer.apply_gradients({{&graph.variables().at(name), at::ones({})}});
      EXPECT_EQ(graph.variables().at(name).tensor.item<double>(), -2.0 * (step / 2)) << name;
    }
  }
}

// Steps of two updates, of {a, b} and of {b, c}, with gradients of 1.
void update_overlapping_sets(Graph& graph, Optimizer& optimizer, int steps) {
  for (int step = 0; step < steps; ++step) {
    TowerContext tower(graph);
    at::NoGradGuard no_grad;
    const auto gradient = [&](const char* name) {
      get_variable(name, {}, init::ones());
      return Gradient{&graph.variables().at(name), at::ones({})};
    };
    const Gradient a = gradient("a"), b = gradient("b"), c = gradient("c");
    optimizer.apply_gradients({a, b});
    optimizer.apply_gradients({b, c});
  }
}

// a and c are updated in every second step, b in every one.
TEST(SeveralOptimizersTest, AveragesOfSetsThatOverlapFollowEachVariable) {
  Graph graph;
  MovingAverageOptimizer optimizer(AccumGradOptimizer(SGD({.lr = 1}), 2), {.decay = 0.5});
  update_overlapping_sets(graph, optimizer, 4);
  const auto value = [&](const std::string& name) {
    return graph.variables().at(name).tensor.item<double>();
  };
  EXPECT_EQ(value("a"), -3);
  EXPECT_EQ(value("b"), -7);
  EXPECT_EQ(value("a/MovingAverage"), -2);     // of -1 and -3
  EXPECT_EQ(value("b/MovingAverage"), -5.25);  // of -1, -3, -5 and -7
  EXPECT_EQ(value("c/MovingAverage"), -2);
}

TEST(SeveralOptimizersTest, SetsThatOverlapAreProcessedVariableByVariable) {
  Graph graph;
  VariableAssignmentOptimizer optimizer(
      AccumGradOptimizer(SGD({.lr = 0}), 2),
      [](const Variable& variable) -> std::optional<at::Tensor> { return variable.tensor * 2; });
  update_overlapping_sets(graph, optimizer, 4);
  const std::map<std::string, double> expected = {{"a", 4}, {"b", 16}, {"c", 4}};
  for (const auto& [name, value] : expected) {
    EXPECT_EQ(graph.variables().at(name).tensor.item<double>(), value) << name;
  }
}

TEST(SeveralOptimizersTest, MinimisingTwicePointsToComputeGradients) {
  Graph graph;
  TowerContext tower(graph);
  SGD first({.scope = "a"}), second({.scope = "b"});
  const at::Tensor shared = get_variable("w", {}, init::ones()).exp();
  minimize(first, shared.square());
  EXPECT_ERROR(minimize(second, shared * 2), "with compute_gradients(), and then");
}

TEST(SeveralOptimizersTest, LeavesThatAreNoVariablesAreToldWhenRecorded) {
  Graph graph;
  SGD sgd;
  const at::Tensor foreign = at::ones({2, 3}).set_requires_grad(true);
  const Op op =
      graph.define({.name = "step", .body = [&](const std::vector<at::Tensor>&) -> NamedTensors {
                      TowerContext tower(graph);
                      minimize(sgd, (get_variable("w", {3}, init::ones()) * foreign).sum());
                      return {};
                    }});
  const std::string log = stdout_of([&] { record_op(graph, op, {}); });
  EXPECT_THAT(log,
              testing::HasSubstr("The cost depends on 1 tensor requiring gradients outside the "
                                 "variables of the graph, of shape [2, 3]"));
}

TEST(SeveralOptimizersTest, ABadRegularExpressionIsAnErrorThatSaysSo) {
  Graph graph;
  TowerContext tower(graph);
  SGD sgd;
  const at::Tensor cost = get_variable("w", {}, init::ones()) * 2;
  EXPECT_ERROR(minimize(sgd, cost, "w("), "'w(' is not a regular expression");
}

}  // namespace
}  // namespace tensorpack
