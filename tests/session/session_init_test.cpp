// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session_init.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/weights_file.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/wrappers.h"
#include "tensorpack/session/save_weights.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/fs.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class SessionInitTest : public testing::Test {
 protected:
  SessionInitTest() {
    CallScope call(graph_);
    get_variable("W", {2, 3}, init::ones());
    get_variable("W/Momentum", {2, 3}, {.role = VariableRole::kGlobal});
    get_variable("mean", {3}, {.role = VariableRole::kModel});
    get_variable("cache", {3}, {.role = VariableRole::kLocal});
  }
  at::Tensor value(const std::string& name) { return graph_.variables().at(name).tensor; }

  Graph graph_;
};

TEST_F(SessionInitTest, ADictionarySetsVariablesByName) {
  const NamedTensors values{{"W", at::full({2, 3}, 7.F)}, {"mean", at::full({3}, 2.F)}};
  const std::string log = stdout_of([&] { DictRestore(values).init(graph_); });
  EXPECT_TRUE(at::equal(value("W"), at::full({2, 3}, 7.F)));
  EXPECT_TRUE(at::equal(value("mean"), at::full({3}, 2.F)));
  EXPECT_THAT(log, Not(HasSubstr("WRN")));  // the slot and the local variable are not missed
}

TEST_F(SessionInitTest, TwoWarningsListWhatOnlyOneSideHas) {
  const NamedTensors values{{"W", at::zeros({2, 3})}, {"V", at::zeros({1})}};
  const std::string log = stdout_of([&] { DictRestore(values).init(graph_); });
  EXPECT_THAT(log,
              AllOf(HasSubstr("has no value for 1 variable of the graph, left as before: mean."),
                    HasSubstr("no variable for 1 value of what is restored, left unused: V.")));
}

TEST_F(SessionInitTest, IgnoredNamesStayAsTheyAre) {
  DictRestore({{"W", at::zeros({2, 3})}, {"mean", at::ones({3})}}, {.ignore = {"W"}}).init(graph_);
  EXPECT_TRUE(at::equal(value("W"), at::ones({2, 3})));
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
}

// TensorFlow's names of tensors.
TEST_F(SessionInitTest, OutputZeroOfAVariableIsTheVariable) {
  const std::string log = stdout_of([&] {
    DictRestore({{"W:0", at::zeros({2, 3})}, {"mean:0", at::ones({3})}}, {.ignore = {"W:0"}})
        .init(graph_);
  });
  EXPECT_THAT(log, Not(HasSubstr("WRN")));
  EXPECT_TRUE(at::equal(value("W"), at::ones({2, 3})));
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
  DictRestore({{"W", at::zeros({2, 3})}, {"mean", at::zeros({3})}}, {.ignore = {"mean:0"}})
      .init(graph_);
  EXPECT_TRUE(at::equal(value("W"), at::zeros({2, 3})));
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
}

TEST_F(SessionInitTest, AVariableThatIsGivenUnderBothNamesIsAnError) {
  EXPECT_ERROR(DictRestore({{"W", at::ones({2, 3})}, {"W:0", at::zeros({2, 3})}}).init(graph_),
               "'W' and 'W:0' are one variable");
}

TEST_F(SessionInitTest, AnArchiveWithTensorFlowsNamesIsRestored) {
  const TempDir dir;
  write_weights(dir / "weights.npz", {{"W:0", at::zeros({2, 3})}, {"mean:0", at::ones({3})}});
  const std::string log = stdout_of([&] { SaverRestore(dir / "weights.npz").init(graph_); });
  EXPECT_THAT(log, Not(HasSubstr("WRN")));
  EXPECT_TRUE(at::equal(value("W"), at::zeros({2, 3})));
}

TEST_F(SessionInitTest, AMisfitIsAnErrorUnlessRelaxed) {
  EXPECT_ERROR(DictRestore({{"W", at::zeros({6})}}).init(graph_),
               "'W' is Float [2, 3] and the stored value Float [6]");
  EXPECT_ERROR(DictRestore({{"W", at::zeros({2, 3}, at::kDouble)}}).init(graph_), "Double [2, 3]");

  const NamedTensors values{{"W", at::arange(6, at::kDouble)}, {"mean", at::ones({4})}};
  const std::string log = stdout_of([&] { DictRestore(values, {.relaxed = true}).init(graph_); });
  EXPECT_TRUE(at::equal(value("W"), at::arange(6, at::kFloat).reshape({2, 3})));
  EXPECT_TRUE(at::equal(value("mean"), at::zeros({3})));
  EXPECT_THAT(log,
              AllOf(HasSubstr("Restored with a change: 'W'"), HasSubstr("Not restored: 'mean'")));
}

TEST_F(SessionInitTest, ACheckpointBringsTheStepIfAskedFor) {
  const TempDir dir;
  save_checkpoint(dir / "model-5.safetensors",
                  {.variables = {{"W", at::full({2, 3}, 4.F)},
                                 {"mean", at::zeros({3})},
                                 {"global_step", at::full({}, 5, at::kLong)}},
                   .global_step = 5});
  SaverRestore(dir / "model-5.safetensors").init(graph_);
  EXPECT_TRUE(at::equal(value("W"), at::full({2, 3}, 4.F)));
  EXPECT_EQ(graph_.global_step().tensor.item<int64_t>(), 0);
  SaverRestore(dir / "model-5.safetensors", {.training_state = true}).init(graph_);
  EXPECT_EQ(graph_.global_step().tensor.item<int64_t>(), 5);
}

// By their roles, whatever they are called.
TEST_F(SessionInitTest, WhatOnlyTrainingNeedsIsNotMissedOnEitherSide) {
  const Checkpoint checkpoint{
      .variables = {{"W", at::zeros({2, 3})},
                    {"mean", at::zeros({3})},
                    {"V/slot", at::zeros({1})},
                    {"V/Momentum", at::zeros({1})}},
      .training_only = {"V/slot"},
  };
  const std::string log = stdout_of([&] { restore_checkpoint(graph_, checkpoint); });
  EXPECT_THAT(log, HasSubstr("WRN The graph has no variable for 1 value of what is restored, left "
                             "unused: V/Momentum."));
  EXPECT_THAT(log, HasSubstr("2 variables of the graph began anew (global_step, W/Momentum), and 1 "
                             "value of what is restored stayed unused (V/slot)."));
}

TEST_F(SessionInitTest, OfManyUnusedSlotsTheFirstAreNamed) {
  Checkpoint checkpoint{.variables = {{"W", at::zeros({2, 3})}, {"mean", at::zeros({3})}}};
  for (const char* slot : {"a", "b", "c", "d", "e"}) {
    checkpoint.variables[slot] = at::zeros({1});
    checkpoint.training_only.insert(slot);
  }
  EXPECT_THAT(stdout_of([&] { restore_checkpoint(graph_, checkpoint); }),
              HasSubstr("and 5 values of what is restored stayed unused (a, b, c, d, ...)."));
}

TEST_F(SessionInitTest, StrictMeansThatBothSidesHaveTheSame) {
  const NamedTensors all{{"W", at::zeros({2, 3})},
                         {"W/Momentum", at::zeros({2, 3})},
                         {"mean", at::zeros({3})},
                         {"global_step", at::full({}, 5, at::kLong)}};
  const auto restore = [&](const NamedTensors& values) {
    restore_checkpoint(graph_, {.variables = values}, {.strict = true});
  };
  for (const auto& [name, value] : all) {
    NamedTensors some = all;
    some.erase(name);
    EXPECT_ERROR(restore(some), "no value for 1 variable of the graph (" + name + ")");
  }
  NamedTensors more = all;
  more.emplace("V", at::zeros({1}));
  EXPECT_ERROR(restore(more), "no variable for 1 value of the checkpoint (V)");
  EXPECT_TRUE(at::equal(value("W"), at::ones({2, 3}))) << "a refused checkpoint changes nothing";
  restore(all);
  EXPECT_TRUE(at::equal(value("W"), at::zeros({2, 3})));
}

// One optimizer of two sets of variables had one counter, which counted the updates of both.
TEST(OlderCheckpointTest, ItsCounterIsDividedByTheSetsOfVariables) {
  Graph graph;
  AccumGradOptimizer optimizer(Adam(), 4);
  CallScope call(graph);
  at::NoGradGuard no_grad;
  for (const char* name : {"discrim", "gen"}) {
    get_variable(name, {}, init::ones());
    optimizer.apply_gradients({{&graph.variables().at(name), at::ones({})}});
  }
  Checkpoint checkpoint{.format = 2};
  for (const Variable& variable : graph.variables().all()) {
    checkpoint.variables.emplace(variable.name, variable.tensor.clone());
  }
  const auto restore = [&](const Checkpoint& checkpoint) {
    return stdout_of([&] { restore_checkpoint(graph, checkpoint, {.strict = true}); });
  };
  const auto count = [&](const char* name) {
    return graph.variables().at(name).tensor.item<int64_t>();
  };
  checkpoint.variables.at("Adam/step").fill_(16);
  checkpoint.variables.at("Adam/step_1").fill_(9);
  restore(checkpoint);
  EXPECT_EQ(count("Adam/step"), 16) << "both are there";
  checkpoint.variables.at("AccumGrad/step").fill_(64);
  for (const char* second : {"Adam/step_1", "AccumGrad/step_1"}) checkpoint.variables.erase(second);
  EXPECT_THAT(restore(checkpoint), HasSubstr("'Adam/step' of the checkpoint, 16, counted the "
                                             "updates of 2 sets of variables: each of them goes on "
                                             "from 8."));
  for (const char* counter : {"Adam/step", "Adam/step_1"}) EXPECT_EQ(count(counter), 8);
  for (const char* counter : {"AccumGrad/step", "AccumGrad/step_1"}) EXPECT_EQ(count(counter), 32);
  checkpoint.format = 3;
  EXPECT_ERROR(restore(checkpoint), "no value for 2 variables of the graph");
}

TEST_F(SessionInitTest, NamesMayBeThoseOfAnotherLibrary) {
  const NameMap names{
      .rules = {{"^W$", "layer.weight", {.transposed = true}}, {"^mean$", "layer.running_mean"}},
      .ignored = {"tracked$"},
  };
  const NamedTensors theirs{{"layer.weight", at::arange(6, at::kFloat).reshape({3, 2})},
                            {"layer.tracked", at::ones({1})},
                            {"mean", at::ones({3})},  // not ours, whatever it is called
                            {"extra", at::ones({1})}};
  const std::string log =
      stdout_of([&] { DictRestore(theirs, {.ignore = {"extra"}, .names = names}).init(graph_); });
  EXPECT_TRUE(at::equal(value("W"), theirs.at("layer.weight").t()));
  EXPECT_TRUE(at::equal(value("mean"), at::zeros({3})));
  EXPECT_THAT(log, AllOf(HasSubstr("left as before: mean."), HasSubstr("left unused: mean.")));
}

TEST_F(SessionInitTest, WeightsGoOutToAFileAndComeBackFromIt) {
  const TempDir dir;
  std::vector<std::string> files = {"w.safetensors"};
#ifdef TENSORPACK_HAS_ZLIB
  files.push_back("w.npz");
#endif
  const NameMap names{.rules = {{"^", "model."}}};
  for (const std::string& file : files) {
    graph_.variables().at("W").assign(at::full({2, 3}, 5.F));
    save_weights(graph_, dir / file, names);
    EXPECT_EQ(read_weights(dir / file).size(), 2);  // neither the slot nor the step
    graph_.variables().at("W").assign(at::zeros({2, 3}));
    const std::string log =
        stdout_of([&] { SaverRestore(dir / file, {.names = names}).init(graph_); });
    EXPECT_TRUE(at::equal(value("W"), at::full({2, 3}, 5.F)));
    EXPECT_THAT(log, Not(HasSubstr("WRN")));
  }
}

TEST_F(SessionInitTest, LaterOnesOfAChainWin) {
  ChainInit({DictRestore({{"W", at::zeros({2, 3})}, {"mean", at::ones({3})}}),
             DictRestore({{"W", at::full({2, 3}, 9.F)}})})
      .init(graph_);
  EXPECT_TRUE(at::equal(value("W"), at::full({2, 3}, 9.F)));
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
}

TEST_F(SessionInitTest, SmartInitTakesSeveralFilesOfWhichLaterOnesWin) {
  const TempDir dir;
  write_weights(dir / "a.safetensors", {{"W", at::zeros({2, 3})}, {"mean", at::ones({3})}});
  write_weights(dir / "b.safetensors", {{"W", at::full({2, 3}, 9.F)}});
  smart_init({dir / "a.safetensors", dir / "b.safetensors"})->init(graph_);
  EXPECT_TRUE(at::equal(value("W"), at::full({2, 3}, 9.F)));
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
  const std::vector<std::filesystem::path> files = {dir / "b.safetensors", "",
                                                    dir / "a.safetensors"};
  smart_init(files)->init(graph_);
  EXPECT_TRUE(at::equal(value("W"), at::zeros({2, 3})));
  EXPECT_FALSE(static_cast<bool>(smart_init(std::vector<std::filesystem::path>())));
}

TEST_F(SessionInitTest, SmartInitKnowsTheHomeDirectory) {
  const TempDir home;
  const ScopedEnv env("HOME", home.path().string());
  write_weights(home / "w.safetensors", {{"mean", at::ones({3})}});
  smart_init("~/w.safetensors")->init(graph_);
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
  smart_init({"~/w.safetensors", "~/w.safetensors"})->init(graph_);
  EXPECT_ERROR(smart_init("~other/w.safetensors")->init(graph_), "~other");
}

TEST_F(SessionInitTest, SmartInitTakesNothingAPathOrADictionary) {
  EXPECT_FALSE(static_cast<bool>(smart_init("")));
  const TempDir dir;
  EXPECT_ERROR(smart_init(dir / "model-1.safetensors")->init(graph_), "model-1");
  smart_init(NamedTensors{{"mean", at::ones({3})}})->init(graph_);
  EXPECT_TRUE(at::equal(value("mean"), at::ones({3})));
}

}  // namespace
}  // namespace tensorpack
