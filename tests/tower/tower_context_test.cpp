// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_context.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <optional>
#include <set>
#include <thread>

#include "tensorpack/tower/summary.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

TEST(TowerContextTest, TellsModeIndexAndDevice) {
  Graph graph;
  TowerContext tower(graph, {.name = "tower1", .is_training = true, .index = 1, .total = 2});
  EXPECT_EQ(TowerContext::current(), &tower);
  EXPECT_TRUE(is_training());
  EXPECT_FALSE(tower.is_main_training_tower());
  EXPECT_EQ(get_current_tower_context().index(), 1);
  EXPECT_EQ(tower.device(), c10::Device(c10::kCPU));
}

TEST(TowerContextTest, OutsideThereIsNone) {
  {
    Graph graph;
    TowerContext tower(graph, {.is_training = false});
    EXPECT_FALSE(is_training());
    EXPECT_FALSE(tower.is_main_training_tower());
  }
  EXPECT_EQ(TowerContext::current(), nullptr);
  EXPECT_FALSE(is_training());
  EXPECT_ERROR(get_current_tower_context(), "no tower function is being called on this thread");
}

TEST(TowerContextTest, ContextsDoNotNest) {
  Graph graph;
  TowerContext tower(graph);
  EXPECT_ERROR(TowerContext(graph), "towers do not nest");
  EXPECT_EQ(TowerContext::current(), &tower);
}

TEST(TowerContextTest, AnotherThreadHasItsOwn) {
  Graph graph;
  TowerContext tower(graph);
  std::thread([] { EXPECT_EQ(TowerContext::current(), nullptr); }).join();
}

TEST(TowerContextTest, WrongIndicesThrow) {
  Graph graph;
  EXPECT_ERROR(TowerContext(graph, {.index = 2, .total = 2}),
               "tower index 2 is not below the number of towers, 2");
  EXPECT_EQ(TowerContext::current(), nullptr);
  EXPECT_EQ(CallScope::current(), nullptr);
}

TEST(TowerContextTest, NamesBeginWithTheScopeThatIsOpen) {
  Graph graph;
  const VariableScope scope("a");
  {
    TowerContext tower(graph);
    named("x", get_variable("W", {2}));
    EXPECT_TRUE(tower.call().named_tensors().contains("a/x"));
  }
  TowerContext replica(graph, {.index = 1, .total = 2, .variable_prefix = "tower1/"});
  get_variable("W", {2});
  EXPECT_THAT(graph.variables().names(), testing::ElementsAre("global_step", "a/W", "tower1/a/W"));
}

TEST(TowerContextTest, ATowerThatSharesVariablesAddsNoTrainableOnes) {
  Graph graph;
  {
    TowerContext first(graph, {.total = 2});
    get_variable("W", {2});
  }
  TowerContext second(graph, {.index = 1, .total = 2, .shares_variables = true});
  get_variable("W", {2});
  EXPECT_ERROR(get_variable("V", {2}), "exists in this tower but not in the first one");
}

TEST(TowerContextTest, ReplicasHaveVariablesOfTheirOwn) {
  Graph graph;
  {
    TowerContext first(graph, {.total = 2});
    get_variable("W", {2});
  }
  TowerContext second(graph, {.index = 1, .total = 2, .variable_prefix = "tower1/"});
  get_variable("W", {2});
  EXPECT_NE(graph.variables().find("tower1/W"), nullptr);
}

TEST(TowerContextTest, OfSeveralNamesOfATensorTheNewestIsReported) {
  Graph graph;
  TowerContext tower(graph);
  const at::Tensor older = named("zz", at::ones({}));
  EXPECT_EQ(tower.call().name_of(named("aa", older)), "aa");
  EXPECT_EQ(tower.call().name_of(named("yy", named("bb", at::ones({})))), "yy");
  EXPECT_EQ(tower.call().name_of(at::ones({})), "");
  add_moving_summary(older);
  EXPECT_NE(graph.variables().find("EMA/aa"), nullptr);
}

TEST(TowerContextTest, ANameOfALayersOutputIsNewerThanTheLayers) {
  Graph graph;
  for (const bool keeps_outputs : {true, false}) {
    TowerContext tower(graph);
    std::optional<KeptLayerOutputs> kept;
    if (!keeps_outputs) kept.emplace(std::set<std::string>{});
    VariableScope scope("fc");
    const at::Tensor output = layer_output(at::ones({}));
    EXPECT_EQ(tower.call().name_of(output), "fc/output");
    named("logits", output);
    EXPECT_EQ(tower.call().name_of(output), "fc/logits");
    VariableScope inner("wrapped");
    EXPECT_EQ(tower.call().name_of(layer_output(output)), "fc/wrapped/output");
  }
}

}  // namespace
}  // namespace tensorpack
