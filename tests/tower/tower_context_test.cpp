// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/tower_context.h"

#include <gmock/gmock.h>

#include <thread>

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

TEST(TowerContextTest, WrongIndicesAndOpenScopesThrow) {
  Graph graph;
  EXPECT_ERROR(TowerContext(graph, {.index = 2, .total = 2}),
               "tower index 2 is not below the number of towers, 2");
  VariableScope scope("a");
  EXPECT_ERROR(TowerContext(graph), "a tower is opened inside the variable scope 'a'");
  EXPECT_EQ(TowerContext::current(), nullptr);
  EXPECT_EQ(CallScope::current(), nullptr);
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

}  // namespace
}  // namespace tensorpack
