// SPDX-License-Identifier: Apache-2.0
// What a newcomer may do wrong, and what must not be wrong in silence.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "tensorpack/callbacks/best_saver.h"
#include "tensorpack/callbacks/check_numerics.h"
#include "tensorpack/callbacks/early_stopping.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/progress_bar.h"
#include "tensorpack/callbacks/scheduled_hyper_param_setter.h"
#include "tensorpack/callbacks/stat_monitor_param_setter.h"
#include "tensorpack/callbacks/stop_at_nan.h"
#include "tensorpack/callbacks/trigger.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/dataflow/from_generator.h"
#include "tensorpack/dataflow/map.h"
#include "tensorpack/dataflow/shuffle.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/input_source/queue_input.h"
#include "tensorpack/input_source/staging_input.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/session/session_init.h"
#include "tensorpack/tower/summary.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_variable.h"
#include "tensorpack/train/multi_gpu_trainers.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tensorpack/train/train_config.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/seed.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

TEST(SharpEdgesTest, APredictorMayOutliveItsTrainer) {
  std::optional<OnlinePredictor> predict;
  {
    SimpleTrainer trainer;
    trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
    predict = trainer.get_predictor({"x"}, {"prediction"});
    trainer.train({.steps_per_epoch = 4, .max_epoch = 20});
  }
  EXPECT_NEAR((*predict)(at::zeros({1}))[0].item<double>(), 1, 0.01);
}

TEST(SharpEdgesTest, APredictorWhoseTrainerNeverTrainedSaysSo) {
  std::optional<OnlinePredictor> predict;
  {
    SimpleTrainer trainer;
    trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
    predict = trainer.get_predictor({"x"}, {"prediction"});
  }
  EXPECT_ERROR((*predict)(at::zeros({1})), "the session exists from initialize() on");
}

TEST(SharpEdgesTest, TwoInferenceRunnersThatReportOneScalarAreAnError) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  EXPECT_ERROR(
      trainer.train({.callbacks = {InferenceRunner(linear_data(), {ScalarStats({"cost"})}),
                                   InferenceRunner(linear_data(), {ScalarStats({"cost"})})},
                     .steps_per_epoch = 1,
                     .max_epoch = 1}),
      "the scalar 'validation_cost' is reported by ScalarStats of 'InferenceTower' already");
}

// Trains beside callbacks that say what they report; returns the steps.
int64_t steps_beside_validation(Owned<Callback> watcher) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), QueueInput(linear_data()),
      [](const at::Tensor& x, const at::Tensor& y) {
        const at::Tensor cost = linear_cost(x, y);
        add_moving_summary("train_cost", cost);
        return cost;
      },
      SGD({.lr = 0.1}));
  OwnedList<Callback> callbacks;
  callbacks.add(std::unique_ptr<Callback>(std::move(watcher)));
  callbacks.add(PeriodicTrigger(InferenceRunner(linear_data(), {ScalarStats({"cost"})}),
                                {.every_k_epochs = 2}));
  callbacks.add(ScheduledHyperParamSetter("learning_rate", {{1, 0.1}}));
  std::exception_ptr failure;
  stdout_of([&] {
    try {
      trainer.train_with_defaults({.callbacks = std::move(callbacks),
                                   .monitors = OwnedList<MonitorBase>(),
                                   .steps_per_epoch = 2,
                                   .max_epoch = 2});
    } catch (...) {
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
  return trainer.global_step();
}

TEST(SharpEdgesTest, AMisspeltScalarIsAnErrorBeforeTheFirstStep) {
  const TempDir dir;
  const BestSaverOptions here{.checkpoint_dir = dir.path()};
  const std::string message =
      "no callback reports the scalar 'validaton_cost'. Did you mean 'validation_cost'?";
  EXPECT_ERROR(steps_beside_validation(EarlyStopping({.stat_name = "validaton_cost"})),
               "[EarlyStopping] " + message);
  EXPECT_ERROR(steps_beside_validation(MinSaver("validaton_cost", here)), "[MinSaver] " + message);
  EXPECT_ERROR(steps_beside_validation(
                   PeriodicTrigger(MaxSaver("validaton_cost", here), {.every_k_epochs = 2})),
               "[MaxSaver] " + message);
  EXPECT_ERROR(steps_beside_validation(StatMonitorParamSetter(
                   "learning_rate", {.stat_name = "validaton_cost",
                                     .value_func = [](double lr) { return lr / 2; },
                                     .last_k = 2})),
               "[StatMonitorParamSetter] " + message);
  for (const char* name :
       {"validation_cost", "train_cost", "learning_rate", "QueueInput/queue_size"}) {
    EXPECT_EQ(steps_beside_validation(EarlyStopping({.stat_name = name})), 4) << name;
  }
}

TEST(SharpEdgesTest, AnEmptyDataPointIsNotTheEndOfTheData) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(FromList({DataPoint{}})), linear_cost,
                      SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 1, .max_epoch = 1}),
               "a datapoint has 0 components, the input signature has 2");
}

TEST(SharpEdgesTest, QueueInputTrainerSeesTheQueueBehindAStagingInput) {
  QueueInputTrainer trainer;
  trainer.setup_graph(linear_inputs(), StagingInput(QueueInput(linear_data())), linear_cost,
                      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 4, .max_epoch = 2});
  QueueInputTrainer other;
  EXPECT_ERROR(other.setup_graph(linear_inputs(), StagingInput(FeedInput(linear_data())),
                                 linear_cost, SGD({.lr = 0.1})),
               "the input is not a QueueInput");
}

TEST(SharpEdgesTest, ATowerFunctionThatWritesToItsInputLeavesTheDataAlone) {
  for (const ExecutorKind executor : {ExecutorKind::kReplay, ExecutorKind::kEager}) {
    std::vector<DataPoint> points{{at::ones({2}), at::ones({2})}};
    const at::Tensor mine = points[0][0];
    SimpleTrainer trainer;
    trainer.setup_graph(
        linear_inputs(), FeedInput(FromList(points)),
        [](at::Tensor x, const at::Tensor& y) { return linear_cost(x.mul_(2), y); },
        SGD({.lr = 0.1}));
    trainer.train({.session = {.executor = executor}, .steps_per_epoch = 4, .max_epoch = 2});
    EXPECT_TRUE(at::equal(mine, at::ones({2})));
  }
}

TEST(SharpEdgesTest, AnEpochThatTheDataCutsShortIsSaved) {
  TempDir dir;
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data(), {.infinite = false}), linear_cost,
                      SGD({.lr = 0.1}));
  trainer.train({.callbacks = {ModelSaver({.checkpoint_dir = dir.path()})},
                 .steps_per_epoch = 3,
                 .max_epoch = 9});
  const auto latest = CheckpointDirectory(dir.path()).latest();
  ASSERT_TRUE(latest.has_value());
  const Checkpoint checkpoint = load_checkpoint(*latest);
  EXPECT_EQ(checkpoint.global_step, 4);
  EXPECT_EQ(checkpoint.epoch_num, 2);
  EXPECT_TRUE(at::equal(checkpoint.variables.at("w"), trainer.variables().at("w").tensor));
}

// What another run learned is taken, how fast it learned is not, unless asked for.
TEST(SharpEdgesTest, WeightsOfAnotherRunComeWithoutItsLearningRate) {
  TempDir dir;
  const auto train = [&](double lr, TrainOptions options) {
    SimpleTrainer trainer;
    trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = lr}));
    options.steps_per_epoch = 4;
    options.max_epoch = 1;
    trainer.train(std::move(options));
    const auto value = [&](const char* name) {
      return trainer.variables().at(name).tensor.item<float>();
    };
    return std::pair(value("w"), value("learning_rate"));
  };
  const auto [trained, rate] =
      train(0.1, {.callbacks = {ModelSaver({.checkpoint_dir = dir.path()})}});
  const std::string log = stdout_of([&, weight = trained] {
    EXPECT_EQ(train(0, {.session_init = SaverRestore(dir.path())}), std::pair(weight, 0.F));
  });
  EXPECT_THAT(log, testing::ContainsRegex("began anew .*learning_rate"));
  EXPECT_EQ(train(0, {.session_init = SaverRestore(dir.path(), {.training_state = true})}).second,
            rate);
}

// As the log says when no seed was set.
TEST(SharpEdgesTest, TheGlobalSeedRepeatsARunWithDropoutAndShuffledData) {
  const auto train = [](uint64_t seed) {
    set_global_seed(seed);
    SimpleTrainer trainer;
    trainer.setup_graph(
        linear_inputs(), QueueInput(linear_data() | shuffle(4)),
        [](const at::Tensor& x, const at::Tensor& y) {
          const at::Tensor noise = get_variable("noise", {2}, init::normal(1));
          return linear_cost(at::dropout(x + noise, 0.5, is_training()), y);
        },
        SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 5, .max_epoch = 1});
    return trainer.variables().at("noise").tensor.detach().clone();
  };
  const at::Tensor first = train(11);
  EXPECT_TRUE(at::equal(first, train(11)));
  EXPECT_FALSE(at::equal(first, train(12)));
  set_global_seed(0);  // as the tests begin
}

TEST(SharpEdgesTest, ALocalVariableCannotBeUsedToPredict) {
  SimpleTrainer trainer;
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [](const at::Tensor& x, const at::Tensor& y) {
        const at::Tensor scale =
            get_variable("scale", {}, {.init = init::ones(), .role = VariableRole::kLocal});
        return linear_cost(x * scale, y);
      },
      SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.get_predictor({"x"}, {"prediction"}),
               "'scale' is a local variable, which no checkpoint has");
}

template <typename TwoTowers>
void expect_sums_of_their_own(TwoTowers trainer) {
  trainer.setup_graph(
      linear_inputs(), FeedInput(linear_data()),
      [](const at::Tensor& x, const at::Tensor& y) {
        {
          const at::NoGradGuard no_grad;
          get_tower_variable("sum", {}).add_(x.sum());
        }
        return linear_cost(x, y);
      },
      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 2, .max_epoch = 1});  // four batches, in turn
  EXPECT_FLOAT_EQ(trainer.towers()[0].get_variable("sum").tensor.template item<float>(), -1.5);
  EXPECT_FLOAT_EQ(trainer.towers()[1].get_variable("sum").tensor.template item<float>(), 0.5);
}

TEST(SharpEdgesTest, EachTowerKeepsAVariableOfItsOwnThroughTheEndOfAnEpoch) {
  expect_sums_of_their_own(SyncMultiGPUTrainerReplicated(Devices::cpu(2)));
  expect_sums_of_their_own(SyncMultiGPUTrainerParameterServer(Devices::cpu(2)));
}

TEST(SharpEdgesTest, ATrainerWithoutGradientsIsNotWarnedThatNothingIsTrainable) {
  Trainer trainer;
  trainer.set_train_op(Op::nothing());
  const std::string log = stdout_of([&] { trainer.train({.steps_per_epoch = 2, .max_epoch = 1}); });
  EXPECT_THAT(log, testing::HasSubstr("The graph has no trainable variables."));
  EXPECT_THAT(log, testing::Not(testing::HasSubstr("WRN")));
}

TrainOptions diverging(OwnedList<Callback> callbacks) {
  return {.callbacks = std::move(callbacks), .steps_per_epoch = 4, .max_epoch = 20};
}

TEST(SharpEdgesTest, ACostThatIsNotFiniteEndsTheTrainingBeforeItIsSaved) {
  TempDir dir;
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 1e6}));
  EXPECT_ERROR(trainer.train(diverging({StopAtNaN(), ModelSaver({.checkpoint_dir = dir.path()})})),
               "[StopAtNaN] 'cost' is ");
  const auto latest = CheckpointDirectory(dir.path()).latest();
  ASSERT_TRUE(latest.has_value());
  for (const auto& [name, tensor] : load_checkpoint(*latest).variables) {
    EXPECT_TRUE(tensor.isfinite().all().item<bool>()) << name;
  }
}

TEST(SharpEdgesTest, ACostThatIsNotFiniteIsToldOnceIfItMayGoOn) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 1e6}));
  const std::string log =
      stdout_of([&] { trainer.train(diverging({StopAtNaN({.stops = false})})); });
  const size_t first = log.find("[StopAtNaN] 'cost' is ");
  ASSERT_NE(first, std::string::npos);
  EXPECT_EQ(log.find("[StopAtNaN]", first + 1), std::string::npos);
}

// A list of one's own means what it says.
TEST(SharpEdgesTest, ExtraCallbacksThatLeaveOutStopAtNaNAreToldBeforeTraining) {
  const auto log_of = [](OwnedList<Callback> callbacks, OptionalList<Callback> extra_callbacks) {
    SimpleTrainer trainer;
    trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
    return stdout_of([&] {
      trainer.train_with_defaults({.callbacks = std::move(callbacks),
                                   .extra_callbacks = std::move(extra_callbacks),
                                   .monitors = OwnedList<MonitorBase>(),
                                   .steps_per_epoch = 1,
                                   .max_epoch = 1});
    });
  };
  const auto told = testing::ContainsRegex("StopAtNaN is not among the callbacks.*Epoch 1 ");
  EXPECT_THAT(log_of({}, OwnedList<Callback>()), told);
  EXPECT_THAT(log_of({}, OwnedList<Callback>(ProgressBar())), told);
  EXPECT_THAT(log_of({}, {}), testing::Not(testing::HasSubstr("StopAtNaN")));
  EXPECT_THAT(log_of({StopAtNaN()}, OwnedList<Callback>()),
              testing::Not(testing::HasSubstr("StopAtNaN")));
  EXPECT_THAT(log_of({}, OwnedList<Callback>(
                             PeriodicCallback(StopAtNaN({.stops = false}), {.every_k_steps = 1}))),
              testing::Not(testing::HasSubstr("StopAtNaN")));
}

using CostFunction = at::Tensor (*)(const at::Tensor&, const at::Tensor&);

void diverge(CostFunction cost, OwnedList<Callback> callbacks) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), cost, SGD({.lr = 1e6}));
  trainer.train(diverging(std::move(callbacks)));
}

TEST(SharpEdgesTest, ACostThatIsNamedInAScopeIsFound) {
  const CostFunction cost = [](const at::Tensor& x, const at::Tensor& y) {
    const VariableScope scope("head");
    return linear_cost(x, y);
  };
  EXPECT_ERROR(diverge(cost, {StopAtNaN()}), "[StopAtNaN] 'cost' is ");
  EXPECT_ERROR(diverge(cost, {CheckNumerics()}), "[CheckNumerics] 'cost' is ");
}

TEST(SharpEdgesTest, WhatIsMinimisedIsLookedAtNotAPartOfItThatIsCalledCost) {
  const CostFunction unnamed = [](const at::Tensor& x, const at::Tensor& y) {
    return linear_cost(x, y) + get_variable("v", {}).log();
  };
  const CostFunction with_a_name = [](const at::Tensor& x, const at::Tensor& y) {
    return named("total", linear_cost(x, y) * std::numeric_limits<float>::infinity());
  };
  EXPECT_ERROR(diverge(unnamed, {StopAtNaN()}), "[StopAtNaN] 'minimize/cost' is ");
  EXPECT_ERROR(diverge(with_a_name, {StopAtNaN()}), "[StopAtNaN] 'total' is inf at global_step 1");
}

TEST(SharpEdgesTest, ACostThatNobodyLooksAtIsToldBeforeTheFirstStep) {
  const auto log_of = [](OwnedList<Callback> callbacks) {
    return stdout_of([&] {
      SimpleTrainer trainer;
      trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
      trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 1, .max_epoch = 1});
    });
  };
  const std::string log =
      log_of({StopAtNaN({.tensor = "costs"}), CheckNumerics({.tensor = "prediction"})});
  EXPECT_THAT(log, testing::ContainsRegex("StopAtNaN. nobody looks .* no step gives a scalar "
                                          "'costs'.*cost.*Epoch 1 "));
  EXPECT_THAT(log, testing::HasSubstr("[CheckNumerics] nobody looks"));
  EXPECT_THAT(log_of({StopAtNaN(), CheckNumerics()}), testing::Not(testing::HasSubstr("WRN")));
}

TEST(SharpEdgesTest, ACheckpointOfAnotherModelIsAnError) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.train({.session_init = DictRestore({{"fc/W", at::zeros({})}}),
                              .steps_per_epoch = 1,
                              .max_epoch = 1}),
               "this is of another model: it has fc/W, and this one has ");
}

TEST(SharpEdgesTest, ATrainingWithoutAnEpochIsTold) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  const std::string log = stdout_of(
      [&] { trainer.train({.steps_per_epoch = 1, .starting_epoch = 3, .max_epoch = 2}); });
  EXPECT_THAT(log, testing::HasSubstr("There is nothing to train: it would begin with epoch 3"));
}

// As torch::optim does with the parameters of a module that nobody adopted.
TEST(SharpEdgesTest, AParameterThatIsTrainedButIsNoVariableIsTold) {
  const at::Tensor foreign = at::ones({2}).set_requires_grad(true);
  SimpleTrainer trainer;
  const std::string log = stdout_of([&] {
    trainer.setup_graph(
        linear_inputs(), FeedInput(linear_data()),
        [&](const at::Tensor& x, const at::Tensor& y) {
          (x * foreign - y).square().mean().backward();
          foreign.data().sub_(foreign.grad(), 0.1);
          return linear_cost(x, y);
        },
        SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
  });
  EXPECT_THAT(log, testing::HasSubstr("changes 1 tensor requiring gradients outside the variables "
                                      "of the graph, of shape [2], as an optimizer"));
}

// What is differentiated by the inputs, as in a gradient penalty, is not what is to be trained.
TEST(SharpEdgesTest, ALeafMadeOfTheInputsIsNotTold) {
  const auto log_of = [](const auto& leaf_of) {
    SimpleTrainer trainer;
    return stdout_of([&] {
      trainer.setup_graph(
          linear_inputs(), FeedInput(linear_data()),
          [&](const at::Tensor& x, const at::Tensor& y) {
            const at::Tensor leaf = leaf_of(x).requires_grad_(true);
            const at::Tensor cost = linear_cost(leaf, y);
            const at::Tensor slope = torch::autograd::grad(
                {cost}, {leaf}, {}, /*retain_graph=*/true, /*create_graph=*/true)[0];
            return named("total", cost + (slope.norm() - 1).square());
          },
          SGD({.lr = 0.1}));
      trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
    });
  };
  const auto warning = testing::HasSubstr("The cost depends on 1 tensor requiring gradients");
  EXPECT_THAT(log_of([](const at::Tensor& x) { return x.detach().clone(); }),
              testing::Not(warning));
  EXPECT_THAT(log_of([](const at::Tensor& x) { return x.detach(); }), testing::Not(warning));
  EXPECT_THAT(log_of([](const at::Tensor& x) { return (at::rand({}) * x).add(1); }),
              testing::Not(warning));
  EXPECT_THAT(log_of([](const at::Tensor& x) { return at::rand({x.size(0)}); }), warning);
}

TEST(SharpEdgesTest, AnEpochBeforeTheFirstIsAnError) {
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 1, .starting_epoch = 0, .max_epoch = 2}),
               "[train] starting_epoch is 0, but epochs are counted from 1.");
}

TEST(SharpEdgesTest, ValidationThatDoesNotEndIsTold) {
  const auto forever = [] {
    return FromGenerator([]() -> Generator<DataPoint> {
      const at::Tensor x = at::zeros(2);
      const at::Tensor y = at::zeros(2);
      for (int i = 0; i < 10'000; ++i) co_yield datapoint(x, y);
      throw StopTraining("nobody waits longer");
    });
  };
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  const std::string log = stdout_of([&] {
    trainer.train({.callbacks = {InferenceRunner(forever(), {ScalarStats({"cost"})})},
                   .steps_per_epoch = 1,
                   .max_epoch = 1});
  });
  EXPECT_THAT(log, testing::HasSubstr("has given 10000 datapoints and has not ended"));
}

TEST(SharpEdgesTest, AGeneratorThatWritesToWhatItYieldedIsAnError) {
  SimpleTrainer trainer;
  const auto one_buffer = []() -> Generator<DataPoint> {
    at::Tensor x = at::zeros(2);
    for (int i = 0; i < 10; ++i) {
      x.fill_(i);
      co_yield datapoint(x, x);
    }
  };
  trainer.setup_graph(linear_inputs(), QueueInput(FromGenerator(one_buffer)), linear_cost,
                      SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 10, .max_epoch = 1}),
               "[FromGenerator] component 0 was written to after it was yielded");
}

// Fills one buffer for all batches, as where memory is dear. FeedInput alone may be given it.
DataFlowPtr refilled(std::function<DataPoint(at::Tensor&, float)> fill) {
  return linear_data() | map([buffer = at::zeros({4, 2}), fill, value = 0.0F](DataPoint) mutable {
           return fill(buffer, ++value);
         });
}

TEST(SharpEdgesTest, ABufferThatTwoTowersWouldShareIsAnError) {
  const auto train = [](std::function<DataPoint(at::Tensor&, float)> fill) {
    SyncMultiGPUTrainerReplicated trainer(Devices::cpu(2));
    trainer.setup_graph(linear_inputs(), FeedInput(refilled(std::move(fill))), linear_cost,
                        SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 2, .max_epoch = 1});
  };
  const auto whole = [](at::Tensor& buffer, float value) {
    return datapoint(at::ones({4, 2}).flatten(), buffer.fill_(value).view({-1}));
  };
  EXPECT_ERROR(train(whole), "[input] component 1 was written to after it was yielded");
  const auto column = [](at::Tensor& buffer, float value) {
    buffer.fill_(value);
    return datapoint(buffer.select(1, 0), buffer.select(1, 1));
  };
  EXPECT_ERROR(train(column), "[input] component 0 was written to after it was yielded");
  // A row for each tower.
  train([](at::Tensor& buffer, float value) {
    const at::Tensor row = buffer[static_cast<int64_t>(value) % 2].fill_(value);
    return datapoint(row, row.clone());
  });
}

TEST(SharpEdgesTest, ABufferThatTwoTowersValidateIsAnError) {
  const auto validate = [](int towers) {
    SimpleTrainer trainer;
    trainer.setup_graph(linear_inputs(), FeedInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
    const auto whole = [](at::Tensor& buffer, float value) {
      return datapoint(buffer.fill_(value).view({-1}), at::ones({8}));
    };
    trainer.train({.callbacks = {InferenceRunner(refilled(whole), {ScalarStats({"cost"})},
                                                 {.devices = Devices::cpu(towers)})},
                   .steps_per_epoch = 1,
                   .max_epoch = 1});
  };
  validate(1);
  EXPECT_ERROR(validate(2), "[InferenceRunner] component 0 was written to after it was yielded");
}

TEST(SharpEdgesTest, BatchNormOfOneValueIsAnError) {
  SimpleTrainer trainer;
  const auto cost = [](const at::Tensor& x, const at::Tensor& y) {
    return linear_cost(BatchNorm("bn", x.unsqueeze(1)).squeeze(1), y);
  };
  trainer.setup_graph(linear_inputs(), FeedInput(FromList({{at::ones({1}), at::ones({1})}})), cost,
                      SGD({.lr = 0.1}));
  EXPECT_ERROR(trainer.train({.steps_per_epoch = 1, .max_epoch = 1}),
               "an input of shape [1, 1] has one value per channel");
}

}  // namespace
}  // namespace tensorpack
