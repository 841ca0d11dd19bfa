// SPDX-License-Identifier: Apache-2.0
// launch_train_with_config(): that it trains, and that every mistake is told before the first step.
#include <gmock/gmock.h>

#include <thread>

#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/progress_bar.h"
#include "tensorpack/callbacks/stop_at_nan.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/stage_report.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/models/replace_variables.h"
#include "tensorpack/monitors/scalar_printer.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/train/train_config.h"
#include "tensorpack/utils/flags.h"
#include "tests/support/capture.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TrainConfig good_config() {
  return {
      .model = linear_model(),
      .dataflow = linear_data(),
      .monitors = OwnedList<MonitorBase>(),
      .max_epoch = 50,
  };
}

// What launching throws; training must not have made a step.
std::string error_of(TrainConfig config) {
  SimpleTrainer trainer;
  std::string text;
  stdout_of([&] {
    try {
      launch_train_with_config(std::move(config), trainer);
    } catch (const Error& error) {
      text = error.what();
    }
  });
  EXPECT_EQ(trainer.global_step(), 0);
  return text;
}

TEST(TrainConfigTest, ListsOfCallbacksAndMonitorsAreWrittenInBraces) {
  const TrainConfig config{.extra_callbacks = {StopAtNaN(), ProgressBar()},
                           .monitors = {ScalarPrinter()}};
  ASSERT_TRUE(config.extra_callbacks);
  EXPECT_EQ((*config.extra_callbacks).size(), 2u);
  EXPECT_EQ((*config.monitors).size(), 1u);
  EXPECT_FALSE(TrainConfig{}.extra_callbacks) << "the default ones";
}

TEST(TrainConfigTest, GoodConfigLearns) {
  SimpleTrainer trainer;
  const std::string text = stdout_of([&] { launch_train_with_config(good_config(), trainer); });
  EXPECT_NEAR(trainer.variables().at("w").tensor.item<double>(), 2, 1e-3);
  EXPECT_NEAR(trainer.variables().at("b").tensor.item<double>(), 1, 1e-3);
  EXPECT_EQ(trainer.steps_per_epoch(), 4) << "by default the size of the data";
  EXPECT_EQ(trainer.global_step(), 200);
  EXPECT_THAT(text, HasSubstr("The dataflow is read ahead by a QueueInput."));
}

class TakesHyperParams final : public MonitorBase {
 public:
  explicit TakesHyperParams(HyperParams* params) : params_(params) {}
  void process_hyper_params(const HyperParams& params, const LoopState&) override {
    *params_ = params;
  }

 private:
  HyperParams* params_;
};

TEST(TrainConfigTest, WhatARunWasStartedWithIsReportedWithoutTheUsersDoing) {
  const FlagValues before = command_line_flags();
  set_command_line_flags({{"--model", "linear"}, {"--max_epoch", "1e0"}});
  HyperParams params;
  TrainConfig config = good_config();
  config.model.optimizer = SGD({.lr = 0.25, .momentum = 0.5});
  config.monitors = OwnedList<MonitorBase>(TakesHyperParams(&params));
  config.max_epoch = 1;
  stdout_of([&] { launch_train_with_config(std::move(config), SimpleTrainer({.seed = 9})); });
  set_command_line_flags(before);
  const HyperParams expected = {
      {"deterministic", "false"},
      {"device", "cpu"},
      {"executor", "default"},
      {"lr", "0.25"},
      {"model", "linear"},
      {"momentum", "0.5"},
      {"nesterov", "false"},
      {"optimizer", "SGD"},
      {"precision", "float32"},
      {"processes", "1"},
      {"seed", "9"},
      {"steps_per_epoch", "4"},
      {"trainer", "SimpleTrainer"},
      {"weight_decay", "0"},
      {"max_epoch", "1e0"},  // what was asked for counts more than what came of it
  };
  EXPECT_EQ(params, expected);
}

TEST(TrainConfigTest, InputSourceIsUsedAsItIs) {
  TrainConfig config = good_config();
  config.data = FeedInput(linear_data());
  config.dataflow = nullptr;
  SimpleTrainer trainer;
  const std::string text = stdout_of([&] { launch_train_with_config(std::move(config), trainer); });
  EXPECT_NEAR(trainer.variables().at("w").tensor.item<double>(), 2, 1e-3);
  EXPECT_THAT(text, Not(HasSubstr("QueueInput")));
}

TEST(TrainConfigTest, QueueSizeIsAScalarOfEveryEpoch) {
  SimpleTrainer trainer;
  stdout_of([&] { launch_train_with_config(good_config(), trainer); });
  const auto& history = trainer.monitors().get_history("QueueInput/queue_size");
  EXPECT_EQ(history.size(), 50);
  EXPECT_LE(history.back().second, 50) << "the capacity of the queue";
}

// Keeps what it is told of the data.
class TakesStages final : public MonitorBase {
 public:
  explicit TakesStages(std::vector<std::vector<StageReport>>& all) : all_(&all) {}
  void process_stages(const std::vector<StageReport>& stages, const LoopState&) override {
    all_->push_back(stages);
  }

 private:
  std::vector<std::vector<StageReport>>* all_;
};

TEST(TrainConfigTest, MonitorsAreToldOfTheStagesOfTheDataInEveryEpoch) {
  TrainConfig config = good_config();
  config.max_epoch = 2;
  config.dataflow = linear_data() | prefetch(2);
  std::vector<std::vector<StageReport>> all;
  config.monitors = OwnedList<MonitorBase>(TakesStages(all));
  SimpleTrainer trainer;
  stdout_of([&] { launch_train_with_config(std::move(config), trainer); });
  ASSERT_EQ(all.size(), 2);
  std::vector<std::string> names;
  for (const StageReport& stage : all.back()) names.push_back(stage.name);
  EXPECT_THAT(names, testing::ElementsAre("FromList", "prefetch", "QueueInput"));
}

TEST(TrainConfigTest, ALineSaysThatTrainingWaitsForDataAndForWhichStage) {
  TrainConfig config = good_config();
  config.max_epoch = 1;
  config.dataflow = linear_data() | prefetch(2) | map([](DataPoint p) {
                      std::this_thread::sleep_for(std::chrono::milliseconds(400));
                      return p;
                    });
  SimpleTrainer trainer;
  const std::string text = stdout_of([&] { launch_train_with_config(std::move(config), trainer); });
  EXPECT_THAT(text, testing::ContainsRegex("Training waited for data [0-9]+ % of the time. The "
                                           "slowest stage is Map:"));
}

TEST(TrainConfigTest, DataGivenTwiceOrNotAtAllIsAnError) {
  TrainConfig twice = good_config();
  twice.data = FeedInput(linear_data());
  EXPECT_THAT(error_of(std::move(twice)),
              HasSubstr("[TrainConfig] both .dataflow and .data are set."));
  TrainConfig none = good_config();
  none.dataflow = nullptr;
  EXPECT_THAT(error_of(std::move(none)), HasSubstr("[TrainConfig] there is no data."));
}

TEST(TrainConfigTest, StepsPerEpochMustBeGivenForDataOfUnknownSize) {
  const auto endless = []() -> Generator<DataPoint> {
    const at::Tensor zeros = at::zeros({2});
    DataPoint point{zeros, zeros};
    for (;;) co_yield point;
  };
  TrainConfig config = good_config();
  config.dataflow = FromGenerator(endless);
  EXPECT_THAT(error_of(std::move(config)), HasSubstr("[TrainConfig] steps_per_epoch is not set"));
}

TEST(TrainConfigTest, IncompleteModelIsAnError) {
  TrainConfig no_optimizer = good_config();
  no_optimizer.model.optimizer = nullptr;
  EXPECT_THAT(error_of(std::move(no_optimizer)), HasSubstr("there is no optimizer. Pass one"));
  TrainConfig no_function = good_config();
  no_function.model.build_graph = {};
  EXPECT_THAT(error_of(std::move(no_function)), HasSubstr("[tower function] it is empty."));
}

TEST(TrainConfigTest, WrongNumberOfParametersNamesBothNumbers) {
  TrainConfig config = good_config();
  config.model.build_graph = [](const at::Tensor& x) { return (get_variable("w", {}) * x).mean(); };
  EXPECT_THAT(error_of(std::move(config)),
              HasSubstr("it takes 1 tensor, the input signature has 2 (x, y)."));
}

TEST(TrainConfigTest, CostMustBeOneScalar) {
  TrainConfig vector = good_config();
  vector.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    return get_variable("w", {}) * x - y;
  };
  EXPECT_THAT(error_of(std::move(vector)),
              HasSubstr("the cost must be a scalar, got a tensor of shape [2]. Reduce it"));
  TrainConfig several = good_config();
  several.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    return std::vector<at::Tensor>{x.mean(), y.mean()};
  };
  EXPECT_THAT(error_of(std::move(several)),
              HasSubstr("the tower function returned 2 tensors. Return one: the scalar cost."));
  TrainConfig nothing = good_config();
  nothing.model.build_graph = [](const at::Tensor&, const at::Tensor&) {};
  EXPECT_THAT(error_of(std::move(nothing)), HasSubstr("the tower function returned 0 tensors."));
}

TEST(TrainConfigTest, NothingToTrainIsAnError) {
  TrainConfig config = good_config();
  config.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    return (x - y).square().mean();
  };
  EXPECT_THAT(error_of(std::move(config)),
              testing::AllOf(HasSubstr("the model has no trainable variable."),
                             HasSubstr("a torch::nn module becomes part of the graph by adopt()")));
}

TEST(TrainConfigTest, ATowerFunctionThatDifferentiatesIsToldToReturnTheCost) {
  TrainConfig config = good_config();
  config.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    const at::Tensor cost = (get_variable("w", {}) * x - y).square().mean();
    cost.backward();
    return cost;
  };
  EXPECT_THAT(error_of(std::move(config)), HasSubstr("A tower function calls no .backward()"));
}

TEST(TrainConfigTest, CostThatDependsOnNoVariableIsAnError) {
  TrainConfig config = good_config();
  config.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    return linear_cost(x, y).detach();
  };
  EXPECT_THAT(error_of(std::move(config)),
              HasSubstr("the cost depends on no trainable variable. Do not detach it"));
}

TEST(TrainConfigTest, VariablesWithoutGradientAreNamedInOneWarning) {
  TrainConfig config = good_config();
  config.max_epoch = 1;
  config.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    get_variable("idle_a", {});
    get_variable("idle_b", {});
    return linear_cost(x, y);
  };
  SimpleTrainer trainer;
  const std::string text = stdout_of([&] { launch_train_with_config(std::move(config), trainer); });
  EXPECT_THAT(text, HasSubstr("Without a gradient, 2 trainable variables will not change: "
                              "idle_a, idle_b."));
}

TEST(TrainConfigTest, FrozenVariablesNeedNoGradientAndTowersWarnOnce) {
  TrainConfig config = good_config();
  config.max_epoch = 1;
  config.model.build_graph = [](const at::Tensor& x, const at::Tensor& y) {
    get_variable("idle_of_all", {});
    const at::Tensor scale = [] {
      const auto frozen = freeze_variables();
      return get_variable("scale", {}, init::ones());
    }();
    return linear_cost(x * scale, y);
  };
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
  const std::string text = stdout_of([&] { launch_train_with_config(std::move(config), trainer); });
  EXPECT_THAT(text, HasSubstr("Without a gradient, 1 trainable variable will not change: "
                              "idle_of_all."));
  const std::string warning = "Without a gradient";
  EXPECT_EQ(text.find(warning), text.rfind(warning));
}

TEST(TrainConfigTest, UnknownTensorOfACallbackIsToldWithTheNearestName) {
  TrainConfig progress = good_config();
  progress.callbacks.add(ProgressBar({"predicton"}));
  EXPECT_THAT(error_of(std::move(progress)),
              AllOf(HasSubstr("[ProgressBar] no tensor, input or variable named 'predicton'"),
                    HasSubstr("Did you mean 'prediction'?")));
  TrainConfig inference = good_config();
  inference.callbacks.add(InferenceRunner(linear_data(), {ScalarStats({"costs"})}));
  EXPECT_THAT(error_of(std::move(inference)),
              AllOf(HasSubstr("[ScalarStats] no tensor, input or variable named 'costs'"),
                    HasSubstr("Did you mean 'cost'?")));
}

TEST(TrainConfigTest, DataThatDoesNotFitTheSignatureIsAnError) {
  TrainConfig components = good_config();
  components.dataflow = FromList({{at::zeros({2})}});
  EXPECT_THAT(error_of(std::move(components)),
              HasSubstr("a datapoint has 1 component, the input signature has 2 (x, y)."));
  TrainConfig type = good_config();
  type.dataflow = FromList({{at::zeros({2}, at::kLong), at::zeros({2})}});
  EXPECT_THAT(error_of(std::move(type)), AllOf(HasSubstr("x"), HasSubstr("Long")));
}

TEST(TrainConfigTest, FailureOfTheDataflowIsAFailureOfTheTraining) {
  const auto broken = []() -> Generator<DataPoint> {
    const at::Tensor zeros = at::zeros({2});
    DataPoint point{zeros, zeros};
    co_yield point;
    throw std::runtime_error("disk on fire");
  };
  TrainConfig config = good_config();
  config.dataflow = FromGenerator(broken);
  config.steps_per_epoch = 10;
  SimpleTrainer trainer;
  EXPECT_THAT([&] { launch_train_with_config(std::move(config), trainer); },
              testing::ThrowsMessage<std::runtime_error>(HasSubstr("disk on fire")));
  EXPECT_EQ(trainer.global_step(), 1);
}

TEST(TrainConfigTest, EndOfFiniteDataIsANormalEnd) {
  TrainConfig config = good_config();
  config.dataflow = nullptr;
  config.data = QueueInput(linear_data(), {.infinite = false});
  config.steps_per_epoch = 3;
  SimpleTrainer trainer;
  const std::string text = stdout_of([&] { launch_train_with_config(std::move(config), trainer); });
  EXPECT_EQ(trainer.global_step(), 4);
  EXPECT_EQ(trainer.epoch_num(), 2);
  EXPECT_THAT(text, HasSubstr("Training was stopped: The input source has no more data."));
}

}  // namespace
}  // namespace tensorpack
