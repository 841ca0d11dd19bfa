// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/variable_scope.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/utils/error.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;

TEST(VariableScopeTest, NamesAreJoinedWithSlashes) {
  Graph graph;
  CallScope call(graph);
  VariableScope outer("gen");
  {
    VariableScope inner("conv0");
    get_variable("W", {2, 3});
    EXPECT_EQ(VariableScope::current_path(), "gen/conv0");
  }
  get_variable("b", {2});
  EXPECT_THAT(graph.variables().names(), ElementsAre("global_step", "gen/conv0/W", "gen/b"));
}

TEST(VariableScopeTest, ScopesCloseWhenTheFunctionThrows) {
  try {
    VariableScope outer("a");
    VariableScope inner("b", Reuse::kAuto);
    throw std::runtime_error("no");
  } catch (const std::runtime_error&) {
  }
  EXPECT_EQ(VariableScope::current_path(), "");
  EXPECT_EQ(VariableScope::current_reuse(), Reuse::kNone);
}

TEST(VariableScopeTest, ReuseIsInherited) {
  VariableScope outer("a", Reuse::kAuto);
  {
    VariableScope inner("b");
    EXPECT_EQ(VariableScope::current_reuse(), Reuse::kAuto);
    VariableScope innermost("c", Reuse::kNone);
    EXPECT_EQ(VariableScope::current_reuse(), Reuse::kNone);
  }
  EXPECT_EQ(VariableScope::current_reuse(), Reuse::kAuto);
}

TEST(VariableScopeTest, ReuseAloneKeepsThePathAndMayBeOfTheRoot) {
  Graph graph;
  CallScope call(graph);
  const at::Tensor first = get_variable("W", {2});
  {
    VariableScope shared(Reuse::kAuto);
    EXPECT_EQ(VariableScope::current_path(), "");
    EXPECT_TRUE(get_variable("W", {2}).is_same(first));
    VariableScope inner("gen");
    VariableScope own(Reuse::kNone);
    EXPECT_EQ(VariableScope::path_of("b"), "gen/b");
    EXPECT_EQ(VariableScope::current_reuse(), Reuse::kNone);
  }
  EXPECT_ERROR(get_variable("W", {2}), "'W' is already used");
  EXPECT_ERROR(VariableScope("", Reuse::kAuto),
               "the name is empty. To change only the reuse of the scope around it, write "
               "VariableScope scope(Reuse::kAuto).");
}

TEST(GetVariableTest, SecondCallFindsTheSameTensor) {
  Graph graph;
  at::Tensor first, second;
  {
    CallScope call(graph);
    first = get_variable("W", {2});
  }
  {
    CallScope call(graph);
    second = get_variable("W", {2});
  }
  EXPECT_TRUE(first.is_same(second));
  EXPECT_TRUE(first.requires_grad());
}

TEST(GetVariableTest, CallOnAnotherDeviceReadsACopyThatPassesGradientsOn) {
  Graph graph;
  {
    CallScope call(graph);
    get_variable("W", {2});
    get_scalar_variable("learning_rate", 0.1);
  }
  CallScope call(graph, {.device = at::kMeta});
  const at::Tensor copy = get_variable("W", {2});
  EXPECT_TRUE(copy.is_meta());
  EXPECT_TRUE(copy.requires_grad());
  EXPECT_FALSE(copy.is_leaf());
  EXPECT_TRUE(get_scalar_variable("learning_rate", 0.1)
                  .is_same(graph.variables().at("learning_rate").tensor))
      << "what is written to a copy would be lost";
  EXPECT_TRUE(graph.variables().at("W").tensor.is_cpu());
  VariableScope again("kept");
  const c10::Device cpu(at::kCPU);
  EXPECT_TRUE(get_variable("W", {2}, VariableOptions{.device = cpu}).is_cpu());
}

TEST(GetVariableTest, WeightsWithoutAnInitializerAreGlorotUniform) {
  Graph graph({.seed = 3});
  CallScope call(graph);
  for (const auto& [name, shape, limit] :
       std::vector<std::tuple<std::string, std::vector<int64_t>, double>>{
           {"matrix", {40, 60}, std::sqrt(6.0 / (40 + 60))},
           {"kernel", {8, 4, 5, 5}, std::sqrt(6.0 / (8 * 25 + 4 * 25))}}) {
    const at::Tensor value = get_variable(name, shape).detach();
    EXPECT_LE(value.abs().max().item<double>(), limit);
    EXPECT_GT(value.abs().max().item<double>(), 0.95 * limit);
    EXPECT_NEAR(value.var().item<double>(), limit * limit / 3, 0.05 * limit * limit);
    EXPECT_NEAR(value.mean().item<double>(), 0, 0.1 * limit);
  }
  const at::Tensor half = get_variable("half", {4, 4}, {.dtype = at::kHalf});
  EXPECT_EQ(half.scalar_type(), at::kHalf);
  EXPECT_GT(half.detach().to(at::kFloat).abs().sum().item<double>(), 0);
}

TEST(GetVariableTest, WhatIsNoWeightBeginsWithZeros) {
  Graph graph;
  CallScope call(graph);
  EXPECT_EQ(get_variable("scalar", {}).item<float>(), 0);
  for (const at::Tensor& value :
       {get_variable("bias", {9}), get_variable("sums", {3, 3}, {.role = VariableRole::kModel}),
        get_variable("count", {3, 3}, {.role = VariableRole::kGlobal, .dtype = at::kLong})}) {
    EXPECT_EQ(value.count_nonzero().item<int64_t>(), 0);
  }
  EXPECT_EQ(get_variable("none", {0, 3}).numel(), 0);
}

TEST(GetVariableTest, OnlyTrainableVariablesRequireGradients) {
  Graph graph;
  CallScope call(graph);
  EXPECT_FALSE(get_variable("mean", {2}, {.role = VariableRole::kModel}).requires_grad());
  EXPECT_FALSE(get_scalar_variable("learning_rate", 0.1).requires_grad());
  EXPECT_EQ(graph.variables().trainable().size(), 0U);
}

TEST(GetVariableTest, SecondUseWithoutReuseThrows) {
  Graph graph;
  CallScope call(graph);
  VariableScope discrim("discrim");
  VariableScope fc("fc0");
  get_variable("W", {2});
  EXPECT_ERROR(get_variable("W", {2}),
               "[get_variable] 'discrim/fc0/W' is already used in this tower call. Rename the "
               "layer, or open VariableScope(\"discrim\", Reuse::kAuto)");
}

TEST(GetVariableTest, AutoReuseSharesWithinACall) {
  Graph graph;
  CallScope call(graph);
  auto build = [] {
    VariableScope scope("discrim", Reuse::kAuto);
    return get_variable("W", {2}, init::normal(1));
  };
  EXPECT_TRUE(build().is_same(build()));
}

TEST(GetVariableTest, ReuseOfAMissingVariableThrows) {
  Graph graph;
  CallScope call(graph);
  get_variable("weight", {2});
  VariableScope scope("a", Reuse::kReuse);
  EXPECT_ERROR(get_variable("W", {2}), "'a/W' does not exist and its scope has Reuse::kReuse");
}

TEST(GetVariableTest, TheWordTowerIsReserved) {
  Graph graph;
  CallScope call(graph);
  EXPECT_ERROR(get_variable("tower0/W", {2}), "contains the reserved word 'tower'");
  EXPECT_ERROR(VariableScope("my_tower"), "contains the reserved word 'tower'");
}

TEST(GetVariableTest, EmptyAndSlashedNamesThrow) {
  Graph graph;
  CallScope call(graph);
  EXPECT_ERROR(get_variable("", {2}), "'' is not a name");
  EXPECT_ERROR(get_variable("/W", {2}), "'/W' is not a name");
  EXPECT_ERROR(VariableScope("a/"), "'a/' is not a name");
}

TEST(GetVariableTest, TrainableVariableOnlyInASecondTowerThrows) {
  Graph graph;
  {
    CallScope first(graph);
    get_variable("W", {2});
  }
  CallScope second(graph, {.may_create_trainable = false});
  get_variable("W", {2});
  get_variable("count", {}, {.role = VariableRole::kLocal});
  EXPECT_ERROR(get_variable("V", {2}),
               "the trainable variable 'V' exists in this tower but not in the first one");
}

TEST(GetVariableTest, NewVariableInAFinalGraphThrows) {
  Graph graph;
  {
    CallScope call(graph);
    get_variable("weights", {2});
  }
  graph.finalize();
  CallScope call(graph);
  get_variable("weights", {2});
  EXPECT_ERROR(get_variable("weight", {2}),
               "'weight' is new, and the graph is final. Create every variable while the graph is "
               "built");
  EXPECT_ERROR(get_variable("weigths", {2}), "Did you mean 'weights'?");
}

TEST(GetVariableTest, AnotherShapeOrTypeThrows) {
  Graph graph;
  {
    CallScope call(graph);
    get_variable("W", {2, 3});
  }
  CallScope call(graph);
  VariableScope scope("again", Reuse::kAuto);
  get_variable("W", {1});
  EXPECT_ERROR(get_variable("W", {2}),
               "'again/W' was created with shape [1] and is now asked for with shape [2]");
  EXPECT_ERROR(get_variable("W", {1}, {.dtype = at::kDouble}),
               "'again/W' was created as Float and is now asked for as Double");
}

TEST(GetVariableTest, OutsideACallThrows) {
  EXPECT_ERROR(get_variable("W", {2}), "[get_variable] there is no model being called");
  EXPECT_ERROR(get_scalar_variable("lr", 1), "[get_scalar_variable] there is no model");
}

TEST(GetVariableTest, ReplicasKeepTheirsUnderAPrefix) {
  Graph graph;
  CallScope call(graph, {.variable_prefix = "tower1/"});
  get_variable("W", {2});
  EXPECT_NE(graph.variables().find("tower1/W"), nullptr);
}

TEST(GetVariableTest, ScalarVariablesLiveInTheRootAndAreShared) {
  Graph graph;
  CallScope call(graph);
  VariableScope scope("a");
  const at::Tensor lr = get_scalar_variable("learning_rate", 0.5);
  EXPECT_TRUE(lr.is_same(get_scalar_variable("learning_rate", 0.1)));
  EXPECT_EQ(lr.item<float>(), 0.5F);
  EXPECT_NE(graph.variables().find("learning_rate"), nullptr);
}

TEST(CallScopeTest, CallsDoNotNest) {
  Graph graph;
  CallScope call(graph);
  EXPECT_ERROR(CallScope(graph), "another call is in progress on this thread");
  EXPECT_EQ(CallScope::current(), &call);
}

TEST(NamedTest, NamesCarryTheScopeAndAreFoundAgain) {
  Graph graph;
  CallScope call(graph);
  VariableScope scope("fc");
  const at::Tensor x = named("output", at::ones({2}));
  EXPECT_TRUE(call.tensor("fc/output").is_same(x));
  EXPECT_EQ(call.name_of(x), "fc/output");
  EXPECT_ERROR(call.tensor("fc/outptu"), "Did you mean 'fc/output'?");
}

TEST(NamedTest, ATakenNameThrowsUnlessTheScopeIsReused) {
  Graph graph;
  CallScope call(graph);
  named("cost", at::ones({}));
  EXPECT_ERROR(named("cost", at::ones({})), "'cost' is already the name of another tensor");
  VariableScope scope("discrim", Reuse::kAuto);
  named("output", at::ones({}));
  named("output", at::zeros({}));
  EXPECT_EQ(call.tensor("discrim/output_1").item<float>(), 0);
}

TEST(NamedTest, UndefinedTensorsAndEmptyNamesThrow) {
  Graph graph;
  CallScope call(graph);
  EXPECT_ERROR(named("x", at::Tensor()), "the tensor to be called 'x' is undefined");
  EXPECT_ERROR(named("", at::ones({})), "cannot have an empty name");
}

TEST(NamedTest, OutsideACallItDoesNothing) {
  const at::Tensor x = at::ones({2});
  EXPECT_TRUE(named("x", x).is_same(x));
}

TEST(VariableStoreTest, UnknownNamesAreAnsweredWithNearOnes) {
  Graph graph;
  CallScope call(graph);
  get_variable("conv0/W", {2});
  EXPECT_ERROR(graph.variables().at("conv0/V"), "no variable named 'conv0/V'. Did you mean");
}

TEST(VariableStoreTest, RegularExpressionsSelect) {
  Graph graph;
  CallScope call(graph);
  get_variable("gen/W", {2});
  get_variable("discrim/W", {2});
  EXPECT_EQ(graph.variables().trainable("^gen/").size(), 1U);
  EXPECT_EQ(graph.variables().items("W$").size(), 2U);
}

// Programs refer to the memory of variables, and only a graph knows whether it is final.
template <typename Store>
concept AnybodyMayAdd = requires(Store store) {
  store.add(Variable{});
};
static_assert(!AnybodyMayAdd<VariableStore>);
static_assert(!std::is_assignable_v<decltype((std::declval<Variable&>().tensor)), at::Tensor>);
// Nobody but the graph, which knows whether it is final, adds a variable.
template <typename Store>
concept TakesVariables = requires(Store& store) {
  store.add(Variable());
};
static_assert(!TakesVariables<VariableStore>);

TEST(VariableStoreTest, AssignCopiesAndChecksTheShape) {
  Graph graph;
  CallScope call(graph);
  const at::Tensor w = get_variable("W", {2});
  graph.variables().at("W").assign(at::full({2}, 3));
  EXPECT_EQ(w[0].item<float>(), 3);
  EXPECT_ERROR(graph.variables().at("W").assign(at::ones({3})),
               "variable 'W' has shape [2], the new value [3]");
}

}  // namespace
}  // namespace tensorpack
