// SPDX-License-Identifier: Apache-2.0
// What belongs to one tower: variables that are not shared, and collections.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/session/session.h"
#include "tensorpack/tower/collection.h"
#include "tensorpack/tower/define_tower.h"
#include "tensorpack/tower/tower_variable.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;

class TowerStateTest : public testing::Test {
 protected:
  TowerHandle define(TowerFunc function, const TowerOptions& options = {}) {
    return define_tower(graph_, options,
                        {.op_name = options.name.empty() ? "step" : options.name,
                         .inputs = {{"x", {-1}}},
                         .function = std::move(function)});
  }

  Graph graph_;
};

void count_elements(const at::Tensor& x) {
  const VariableScope scope("stats");
  at::Tensor count = get_tower_variable("count", {}, {.init = init::constant(10)});
  named("count", count.add_(x.sum()));
}

TEST_F(TowerStateTest, EachTowerHasAVariableOfItsOwnThoughTheyShareTheOthers) {
  const TowerHandle first = define(count_elements, {.name = "tower0", .total = 2});
  const TowerHandle second =
      define(count_elements, {.name = "tower1", .index = 1, .total = 2, .shares_variables = true});
  Session session(graph_);
  session.run(first.op(), {}, {{"x", at::ones({2})}});
  session.run(first.op(), {}, {{"x", at::ones({2})}});
  session.run(second.op(), {}, {{"x", at::ones({5})}});
  EXPECT_EQ(first.get_variable("stats/count").name, "tower0/stats/count");
  EXPECT_EQ(first.get_variable("stats/count").tensor.item<float>(), 14);
  EXPECT_EQ(second.get_variable("stats/count").tensor.item<float>(), 15);
  EXPECT_EQ(second["stats/count"].name, "stats/count") << "a tensor comes before a variable";
}

TEST_F(TowerStateTest, AVariableOfATowerIsLocal) {
  define(count_elements);
  const Variable& variable = graph_.variables().at("tower0/stats/count");
  EXPECT_EQ(variable.role, VariableRole::kLocal);
  EXPECT_FALSE(variable.is_saved());
  EXPECT_FALSE(variable.is_replica()) << "it would be made equal to another";
  EXPECT_TRUE(is_tower_variable(variable));
  EXPECT_FALSE(is_tower_variable(graph_.global_step()));
}

TEST_F(TowerStateTest, AVariableOfATowerFollowsTheRulesOfOthers) {
  EXPECT_ERROR(define(count_elements, {.name = "p", .is_training = false}),
               "'stats/count' belongs to a training tower, and the model uses it to predict");
  EXPECT_ERROR(define([](const at::Tensor&) { get_tower_variable("my_tower", {}); }),
               "contains the reserved word 'tower'");
  EXPECT_ERROR(define([](const at::Tensor&) {
                 get_tower_variable("a", {});
                 get_variable("a", {});
               }),
               "'a' is already used in this tower call");
  int64_t size = 1;
  const auto growing = [&](const at::Tensor&) { get_tower_variable("b", {size++}); };
  define(growing, {.name = "c"});
  EXPECT_ERROR(define(growing, {.name = "d"}), "created with shape [1] and is now asked for");
}

at::Tensor layers(at::Tensor x) {
  for (int i = 0; i < 2; ++i) {
    const VariableScope scope("layer" + std::to_string(i));
    const at::Tensor scale = get_variable("scale", {}, init::constant(2));
    add_to_collection("scales", scale);
    x = add_to_collection("outputs", named("output", x * scale));
  }
  EXPECT_EQ(get_collection("outputs").size(), 2U);
  return named("sum", get_collection("outputs")[0].sum() + get_collection("outputs")[1].sum());
}

TEST_F(TowerStateTest, ACollectionIsUsedInItsCallAndByNameAfterwards) {
  const TowerHandle tower = define(layers);
  EXPECT_THAT(collected_names(graph_, "outputs"), ElementsAre("layer0/output", "layer1/output"));
  EXPECT_THAT(collected_names(graph_, "scales"), ElementsAre("layer0/scale", "layer1/scale"));
  Session session(graph_);
  Fetches fetches = collected_names(graph_, "outputs");
  fetches.push_back("sum");
  for (int run = 0; run < 3; ++run) {
    const FetchedValues values = session.run(tower.op(), fetches, {{"x", at::ones({1})}});
    EXPECT_EQ(values[0].item<float>(), 2);
    EXPECT_EQ(values[1].item<float>(), 4);
    EXPECT_EQ(values[2].item<float>(), 6);
  }
  EXPECT_EQ(tower.get_tensors(collected_names(graph_, "scales")).size(), 2U);
  EXPECT_THAT(collected_names(graph_, "outputs"), ElementsAre("layer0/output", "layer1/output"))
      << "later calls add nothing";
}

TEST_F(TowerStateTest, TowersHaveCollectionsOfTheirOwn) {
  define(layers, {.name = "tower0"});
  define([](const at::Tensor& x) { add_to_collection("outputs", named("other", x + 1)); },
         {.name = "p", .is_training = false, .shares_variables = true});
  EXPECT_THAT(collected_names(graph_, "outputs"), ElementsAre("layer0/output", "layer1/output"));
  EXPECT_THAT(collected_names(graph_, "outputs", "p"), ElementsAre("other"));
}

TEST_F(TowerStateTest, WhatNobodyCouldFindIsRefused) {
  EXPECT_ERROR(define([](const at::Tensor& x) { add_to_collection("c", x + 1); }),
               "a tensor without a name is added to 'c'");
  define(layers);
  EXPECT_ERROR(
      collected_names(graph_, "output"),
      "the tower function added nothing to a collection 'output'. Did you mean 'outputs'?");
}

}  // namespace
}  // namespace tensorpack
