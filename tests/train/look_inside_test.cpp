// SPDX-License-Identifier: Apache-2.0
// Callbacks that run a step again, operator by operator.
#include <gmock/gmock.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tensorpack/callbacks/check_numerics.h"
#include "tensorpack/callbacks/graph_profiler.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/dataflow/from_list.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Batches of [2, 3]; that of step `bad` has a zero where the others have ones.
FromList batches(int count, int bad) {
  std::vector<DataPoint> points;
  for (int i = 1; i <= count; ++i) {
    at::Tensor x = at::ones({2, 3});
    if (i == bad) x[1][2] = 0;
    points.push_back({x});
  }
  return FromList(std::move(points));
}

at::Tensor model(const at::Tensor& x, bool takes_logarithm) {
  at::Tensor y = FullyConnected("hidden", x, {.units = 4});
  {
    VariableScope scope("entropy");
    y = y.mean() + (takes_logarithm ? (x.log() * x).mean() : x.mean());
  }
  return named("cost", Dropout("drop", y.view({1, 1})).mean());
}

void train(bool takes_logarithm, int bad, OwnedList<Callback> callbacks) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1, 3}}}, FeedInput(batches(8, bad)),
      [=](const at::Tensor& x) { return model(x, takes_logarithm); }, SGD({.lr = 0.01}));
  stdout_of([&] {
    trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 8, .max_epoch = 1});
  });
}

// 0 log 0: the logarithm is infinite, the product is not a number.
TEST(CheckNumericsTest, NamesTheOperatorAndTheLayerThatGaveTheFirstNaN) {
  EXPECT_THAT([] { train(true, 3, {CheckNumerics()}); },
              ThrowsMessage<Error>(
                  AllOf(HasSubstr("[CheckNumerics] 'cost' is NaN at global_step 3"),
                        HasSubstr("aten::mul in layer 'entropy' is the first to give NaN"),
                        HasSubstr("of infinities that aten::log in layer 'entropy' gave"))));
}

// The step is run again with the random numbers that it had.
TEST(CheckNumericsTest, FindsANaNThatARandomNumberMade) {
  SimpleTrainer trainer({.seed = 5});
  trainer.setup_graph(
      {{"x", {-1, 3}}}, FeedInput(batches(200, 0)),
      [](const at::Tensor& x) {
        const at::Tensor w = get_variable("w", {}, init::constant(1));
        VariableScope scope("noise");
        return named("cost", x.mean() * w + (at::rand({1}) - 0.05).log().mean() * 0);
      },
      SGD({.lr = 0}));
  EXPECT_THAT(
      [&] {
        stdout_of([&] {
          trainer.train({.callbacks = {CheckNumerics()}, .steps_per_epoch = 200, .max_epoch = 1});
        });
      },
      ThrowsMessage<Error>(HasSubstr("aten::log in layer 'noise' is the first to give NaN")));
}

TEST(CheckNumericsTest, AFiniteTrainingIsLeftAlone) {
  train(true, 0, {CheckNumerics()});
  train(false, 3, {CheckNumerics()});
}

TEST(CheckNumericsTest, ChangesNothingOfATraining) {
  const auto weights = [](OwnedList<Callback> callbacks) {
    SimpleTrainer trainer({.seed = 5});
    trainer.setup_graph(
        {{"x", {-1, 3}}}, FeedInput(batches(8, 0)),
        [](const at::Tensor& x) { return model(x, true); }, SGD({.lr = 0.01}));
    stdout_of([&] {
      trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 8, .max_epoch = 1});
    });
    return trainer.variables().at("hidden/W").tensor.detach().clone();
  };
  EXPECT_TRUE(weights({}).equal(weights({CheckNumerics()})));
  EXPECT_TRUE(weights({}).equal(
      weights({GraphProfiler({.first_step = 2, .every_k_steps = 2, .repetitions = 1})})));
}

// The gradient of sqrt at 0 is infinite, times 0 it is not a number: found in the backward pass.
TEST(CheckNumericsTest, TellsTheBackwardPassApart) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1, 3}}}, FeedInput(batches(8, 2)),
      [](const at::Tensor& x) {
        VariableScope scope("norm");
        const at::Tensor w = get_variable("w", {3}, init::constant(1));
        return named("cost", (x * w).square().sqrt().mean());
      },
      SGD({.lr = 0.01}));
  EXPECT_THAT(
      [&] {
        stdout_of([&] {
          trainer.train({.callbacks = {CheckNumerics()}, .steps_per_epoch = 8, .max_epoch = 1});
        });
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("the variable 'norm/w' is not finite at global_step 2"),
                                 HasSubstr("in the backward pass of layer 'norm'"))));
}

TEST(CheckNumericsTest, NamesAVariableThatIsNotFiniteBeforeTraining) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1, 3}}}, FeedInput(batches(1, 0)),
      [](const at::Tensor& x) {
        return named("cost", x.mean() * get_variable("w", {}, init::constant(NAN)));
      },
      SGD({.lr = 0.01}));
  EXPECT_THAT(
      [&] {
        stdout_of([&] {
          trainer.train({.callbacks = {CheckNumerics()}, .steps_per_epoch = 1, .max_epoch = 1});
        });
      },
      ThrowsMessage<Error>(HasSubstr("the variable 'w' is not finite before training")));
}

TEST(CheckNumericsTest, NamesTheInputThatIsNotFinite) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1}}}, FeedInput(FromList(std::vector<DataPoint>{DataPoint{at::full({1}, NAN)}})),
      [](const at::Tensor& x) { return named("cost", x.mean() * get_variable("w", {})); },
      SGD({.lr = 0.01}));
  EXPECT_THAT(
      [&] {
        stdout_of([&] {
          trainer.train({.callbacks = {CheckNumerics()}, .steps_per_epoch = 1, .max_epoch = 1});
        });
      },
      ThrowsMessage<Error>(HasSubstr("'x' has NaN before the step")));
}

TEST(GraphProfilerTest, WritesTimesByLayerWithForwardAndBackwardApart) {
  const TempDir dir;
  stdout_of([&] { set_logger_dir(dir.path(), LogDirAction::kKeep); });
  train(true, 0, {GraphProfiler({.first_step = 3, .repetitions = 2})});
  reset_logger_dir();
  const std::string table = read_file(dir / "profile-3.txt");
  EXPECT_THAT(table, AllOf(HasSubstr("  hidden "), HasSubstr("  entropy "), HasSubstr("aten::")));

  const auto trace = nlohmann::json::parse(read_file(dir / "chrome-trace-3.json"));
  std::map<std::string, int> hidden;  // operators of the layer, by direction
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_GE(event.at("dur").get<double>(), 0);
    if (event.at("args").at("layer") == "hidden") ++hidden[event.at("cat").get<std::string>()];
  }
  EXPECT_GE(hidden["forward"], 1);
  EXPECT_GE(hidden["backward"], 1);
}

// Takes the graph of a step, and remembers the shape of its input.
class TakesGraph final : public MonitorBase {
 public:
  explicit TakesGraph(std::vector<int64_t>* input) : input_(input) {}
  bool wants_graph() const override { return true; }
  void process_graph(const Trace& trace, const LoopState&) override {
    *input_ = trace.values[static_cast<size_t>(trace.inputs[0])].sizes;
  }

 private:
  std::vector<int64_t>* input_;
};

TEST(GraphOfAStepTest, IsTheOneThatIsTrainedAndTakesNoRecordingMore) {
  std::vector<int64_t> input;
  const auto calls_of_the_model = [](OwnedList<MonitorBase> monitors) {
    int calls = 0;
    SimpleTrainer trainer;
    trainer.setup_graph(
        {{"x", {-1, 3}}}, FeedInput(batches(8, 0)),
        [&calls](const at::Tensor& x) {
          ++calls;
          return model(x, false);
        },
        SGD({.lr = 0.01}));
    stdout_of([&] {
      trainer.train({.monitors = std::move(monitors), .steps_per_epoch = 8, .max_epoch = 1});
    });
    return calls;
  };
  EXPECT_EQ(calls_of_the_model(TakesGraph(&input)), calls_of_the_model(OwnedList<MonitorBase>()));
  EXPECT_THAT(input, testing::ElementsAre(2, 3)) << "of the batches, not of a trial";
}

std::string profile(Owned<Callback> profiler, int64_t steps = 40) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1, 3}}}, FeedInput(batches(8, 0)),
      [](const at::Tensor& x) { return model(x, true); }, SGD({.lr = 0.01}));
  OwnedList<Callback> callbacks;
  callbacks.add(std::unique_ptr<Callback>(std::move(profiler)));
  return stdout_of([&] {
    trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = steps, .max_epoch = 1});
  });
}

std::string told(int64_t step) { return fmt::format("Profile of a step at global_step {}:", step); }

TEST(GraphProfilerTest, LooksIntoTheFirstStepInWhichItIsEnabled) {
  const auto between = [](int64_t low, int64_t high) {
    return
        [=](const Callback& self) { return low < self.global_step() && self.global_step() < high; };
  };
  const std::string once =
      profile(EnableCallbackIf(GraphProfiler({.repetitions = 1}), between(20, 30)));
  EXPECT_THAT(once, HasSubstr(told(22)));  // after 21 steps comes number 22
  EXPECT_EQ(once.find("Profile of"), once.rfind("Profile of"));
  EXPECT_THAT(once, testing::Not(HasSubstr("no step was looked into")));
  const std::string often = profile(
      EnableCallbackIf(GraphProfiler({.every_k_steps = 3, .repetitions = 1}), between(20, 30)));
  for (const int64_t step : {22, 25, 28}) EXPECT_THAT(often, HasSubstr(told(step)));
  for (const int64_t step : {10, 13, 21, 23, 31}) {
    EXPECT_THAT(often, testing::Not(HasSubstr(told(step))));
  }
}

TEST(GraphProfilerTest, StepsAreThoseOfTheTraining) {
  const std::string text =
      profile(GraphProfiler({.first_step = 3, .every_k_steps = 4, .repetitions = 1}), 12);
  for (const int64_t step : {3, 7, 11}) EXPECT_THAT(text, HasSubstr(told(step)));
  for (const int64_t step : {2, 4, 5, 8, 12})
    EXPECT_THAT(text, testing::Not(HasSubstr(told(step))));
}

TEST(GraphProfilerTest, SaysThatNoStepWasLookedInto) {
  EXPECT_THAT(profile(GraphProfiler(), 9),
              HasSubstr("[GraphProfiler] no step was looked into: it was enabled in none from step "
                        "10 on, and the training made 9."));
  EXPECT_THAT(profile(EnableCallbackIf(GraphProfiler(), [](const Callback&) { return false; })),
              HasSubstr("no step was looked into"));
}

TEST(GraphProfilerTest, TheTableAddsUp) {
  const std::vector<OperatorTime> times = {
      {{.op = "aten::mm", .layer = "fc"}, 0, 0.003, 0},
      {{.op = "aten::relu", .layer = ""}, 0.003, 0.001, 0},
      {{.op = "aten::mm", .layer = "fc", .is_backward = true}, 0.004, 0.006, 0},
  };
  const std::string table = detail::describe_profile(times, 1);
  EXPECT_THAT(table, HasSubstr("fc                                           9.000   90.0        "
                               "3.000        6.000      2\n  and 1 more"));
  EXPECT_THROW(GraphProfiler({.first_step = 0}), Error);
}

}  // namespace
}  // namespace tensorpack
