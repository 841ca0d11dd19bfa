// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/adopt.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/convert_parameters.h>

#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/define_tower.h"
#include "tensorpack/tower/summary.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using at::Tensor;

TowerHandle define_training(Graph& graph, const TowerFunc& function, TowerOptions options = {}) {
  return define_tower(graph, std::move(options),
                      {.op_name = "train",
                       .inputs = {{"x", {-1, 3}}},
                       .function = function,
                       .body = [sgd = SGD({.lr = 0.1})](TowerContext& tower) mutable {
                         minimize(sgd, tower.outputs()[0]);
                       }});
}

std::vector<std::string> names_of(const Graph& graph, VariableRole role) {
  std::vector<std::string> names;
  for (const Variable& variable : graph.variables().all()) {
    if (variable.role == role) names.push_back(variable.name);
  }
  return names;
}

TEST(AdoptTest, ParametersAreTrainedAndBuffersAreModelVariables) {
  Graph graph;
  torch::nn::Sequential net(torch::nn::Linear(3, 4), torch::nn::BatchNorm1d(4));
  const Tensor first = net->parameters()[0].detach().clone();
  const TowerHandle tower = define_training(
      graph, [&](const Tensor& x) { return adopt("net", net)->forward(x).square().mean(); });
  EXPECT_THAT(names_of(graph, VariableRole::kTrainable),
              testing::ElementsAre("net/0/weight", "net/0/bias", "net/1/weight", "net/1/bias"));
  EXPECT_THAT(
      names_of(graph, VariableRole::kModel),
      testing::ElementsAre("net/1/running_mean", "net/1/running_var", "net/1/num_batches_tracked"));
  EXPECT_TRUE(at::equal(graph.variables().at("net/0/weight").tensor, first))
      << "they begin with the values of the module";
  Session session(graph);
  for (int i = 0; i < 5; ++i) session.run(tower.op(), {}, {{"x", at::rand({8, 3})}});
  EXPECT_FALSE(at::equal(graph.variables().at("net/0/weight").tensor, first));
  EXPECT_EQ(graph.variables().at("net/1/num_batches_tracked").tensor.item<int64_t>(), 5);
  EXPECT_TRUE(net->parameters()[0].is_same(graph.variables().at("net/0/weight").tensor))
      << "the module itself is trained";
}

// As torch::load() does, these give parameters other memory.
TEST(AdoptTest, WeightsThatLibtorchBringsAreTrainedFromTheNextStepOn) {
  const auto bring_weights = [](const torch::nn::Linear& net) {
    const at::NoGradGuard no_grad;
    const Tensor weights = torch::nn::utils::parameters_to_vector(net->parameters());
    torch::nn::utils::vector_to_parameters(weights * -3, net->parameters());
  };
  const Tensor x = at::ones({4, 3});
  torch::nn::Linear by_hand(3, 1), net(3, 1);
  torch::nn::utils::vector_to_parameters(
      torch::nn::utils::parameters_to_vector(net->parameters()).detach().clone(),
      by_hand->parameters());
  Graph graph;
  const TowerFunc function = [&](const Tensor& x) {
    return named("cost", adopt("net", net)->forward(x).square().mean());
  };
  const TowerHandle tower = define_training(graph, function);
  const TowerHandle predict =
      define_tower(graph, {.name = "predict", .is_training = false, .shares_variables = true},
                   {.inputs = {{"x", {-1, 3}}}, .function = function});
  Session session(graph);
  for (int step = 0; step < 20; ++step) {
    const Tensor cost = by_hand->forward(x).square().mean();
    EXPECT_NEAR(session.run(predict["cost"], {{"x", x}}).item<float>(), cost.item<float>(), 1e-5);
    session.run(tower.op(), {}, {{"x", x}});
    cost.backward();
    for (const Tensor& parameter : by_hand->parameters()) {
      const at::NoGradGuard no_grad;
      parameter.sub_(parameter.grad() * 0.1);
      parameter.grad().zero_();
    }
    if (step != 3 && step != 12) continue;
    bring_weights(net);
    bring_weights(by_hand);
  }
  EXPECT_TRUE(at::allclose(net->weight, by_hand->weight, 1e-4, 1e-6));
}

TEST(AdoptTest, AModuleMadeInsideTheFunctionIsKept) {
  Graph graph;
  const TowerHandle tower = define_training(graph, [](const Tensor& x) {
    return adopt("linear", torch::nn::Linear(3, 1))->forward(x).square().mean();
  });
  Session session(graph);
  const Tensor x = at::ones({4, 3});
  for (int i = 0; i < 100; ++i) session.run(tower.op(), {}, {{"x", x}});
  const Tensor output = graph.variables().at("linear/weight").tensor.sum() +
                        graph.variables().at("linear/bias").tensor;
  EXPECT_LT(output.abs().item<float>(), 1e-3) << "it was redrawn, or not trained";
}

TEST(AdoptTest, PredictionUsesTheModuleInEvaluationMode) {
  Graph graph;
  torch::nn::BatchNorm1d norm(3);
  const TowerFunc function = [&](const Tensor& x) {
    return named("y", adopt("norm", norm)->forward(x)).mean();
  };
  define_training(graph, function);
  const TowerHandle predict =
      define_tower(graph, {.name = "predict", .is_training = false, .shares_variables = true},
                   {.inputs = {{"x", {-1, 3}}}, .function = function});
  Session session(graph);
  const Tensor x = at::full({2, 3}, 2.F);
  EXPECT_NEAR(session.run(predict["y"], {{"x", x}})[0][0].item<float>(), 2, 1e-4)
      << "the statistics of the batch would give 0";
}

TEST(AdoptTest, ATowerWithVariablesOfItsOwnHasAClone) {
  Graph graph;
  torch::nn::Linear linear(3, 1);
  const TowerFunc function = [&](const Tensor& x) {
    return adopt("linear", linear)->forward(x).square().mean();
  };
  define_training(graph, function, {.name = "tower0", .total = 2});
  define_training(graph, function,
                  {.name = "tower1", .index = 1, .total = 2, .variable_prefix = "tower1/"});
  const Variable& original = graph.variables().at("linear/weight");
  const Variable& replica = graph.variables().at("tower1/linear/weight");
  EXPECT_TRUE(at::equal(original.tensor, replica.tensor));
  EXPECT_FALSE(original.tensor.is_alias_of(replica.tensor));
  EXPECT_FALSE(replica.is_saved());
}

// As most modules outside libtorch are written: not a torch::nn::Cloneable.
struct PlainModule final : torch::nn::Module {
  PlainModule() { linear = register_module("linear", torch::nn::Linear(3, 1)); }
  Tensor forward(const Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear = nullptr;
};

TEST(AdoptTest, AModuleThatCannotBeClonedIsAnErrorWhereATowerNeedsItsOwn) {
  Graph graph;
  const TowerFunc function = [module = std::make_shared<PlainModule>()](const Tensor& x) {
    return adopt("net", module)->forward(x).square().mean();
  };
  define_training(graph, function, {.name = "tower0", .total = 2});
  EXPECT_ERROR(
      define_training(graph, function,
                      {.name = "tower1", .index = 1, .total = 2, .variable_prefix = "tower1/"}),
      "[adopt] a tower with variables of its own needs a copy of the module 'net'");
}

TEST(AdoptTest, ATowerWithVariablesOfItsOwnKeepsTheModuleThatTheFunctionMakesForIt) {
  Graph graph;
  const TowerFunc function = [](const Tensor& x) {
    return adopt("net", std::make_shared<PlainModule>())->forward(x).square().mean();
  };
  define_training(graph, function, {.name = "tower0", .total = 2});
  const TowerHandle second = define_training(
      graph, function, {.name = "tower1", .index = 1, .total = 2, .variable_prefix = "tower1/"});
  const Tensor original = graph.variables().at("net/linear/weight").tensor;
  const Tensor replica = graph.variables().at("tower1/net/linear/weight").tensor;
  EXPECT_TRUE(at::equal(original, replica)) << "it begins as the first one";
  EXPECT_FALSE(original.is_alias_of(replica));
  Session session(graph);
  session.run(second.op(), {}, {{"x", at::ones({4, 3})}});
  EXPECT_FALSE(at::equal(original, replica)) << "each is trained by its tower";
}

TEST(AdoptTest, AnyNameIsFree) {
  Graph graph;
  torch::nn::Linear linear(3, 1);
  define_training(graph, [&](const Tensor& x) {
    add_param_summary({{"summaries/.*"}});
    return adopt("summaries", linear)->forward(x).square().mean();
  });
  EXPECT_THAT(names_of(graph, VariableRole::kTrainable),
              testing::ElementsAre("summaries/weight", "summaries/bias"));
}

TEST(AdoptTest, ASecondUseWithoutReuseIsAnError) {
  Graph graph;
  torch::nn::Linear linear(3, 3);
  EXPECT_ERROR(
      define_training(graph,
                      [&](const Tensor& x) {
                        return adopt("a", linear)->forward(adopt("a", linear)->forward(x)).sum();
                      }),
      "'a/weight' is already used in this tower call");
  EXPECT_ERROR(adopt("a", linear), "[adopt] there is no model being called");
}

}  // namespace
}  // namespace tensorpack
