// SPDX-License-Identifier: Apache-2.0
// The document "Trainers", sentence by sentence. Define and run, the two loops and steps_per_epoch
// are in 000_understand_trainer_test.cpp.
#include <gmock/gmock.h>

#include "tensorpack/utils/device.h"
#include "tests/spec/support.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

// "Tensorpack trainers avoid making assumptions on what type of training you want to do. For
// example, unlike Keras, tensorpack does not wrongly assume that: 1. Your training is batched"
TEST(TrainersSpec, ATrainingNeedNotBeBatched) {
  SimpleTrainer trainer;
  const auto point = [](int64_t number) {
    const Tensor x = torch::full({}, 0.25 * static_cast<double>(number % 8) - 1);
    return DataPoint{x, 2 * x + 1};
  };
  trainer.setup_graph(
      {{"x", {}}, {"y", {}}}, TensorInput(point),
      [](const Tensor& x, const Tensor& y) {
        return (get_variable("w", {}) * x + get_variable("b", {}) - y).square();
      },
      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 400, .max_epoch = 1});
  expect_learned(trainer);
}

// "2. Your training is gradient-based optimization"
TEST(TrainersSpec, ATrainingNeedNotBeGradientBased) {
  class Perceptron final : public TowerTrainer {
   public:
    Perceptron() {
      setup_tower(linear_inputs(), QueueInput(linear_data()), [](const Tensor& x, const Tensor& y) {
        torch::NoGradGuard no_grad;
        const Tensor w = get_variable("w", {}, {.role = VariableRole::kModel});
        const Tensor b = get_variable("b", {}, {.role = VariableRole::kModel});
        const Tensor error = y - w * x - b;  // the delta rule, which knows no gradients
        w.add_((error * x).mean(), 0.2);
        b.add_(error.mean(), 0.2);
      });
      set_train_op(define("learn", {}));
    }
  };
  Perceptron trainer;
  trainer.train({.steps_per_epoch = 4, .max_epoch = 50});
  expect_learned(trainer);
}

// "3. Your data has `X`(inputs) and `y`(outputs)"
TEST(TrainersSpec, DataNeedNotBeInputsAndOutputs) {
  SimpleTrainer one;  // finds the mean of numbers
  one.setup_graph(
      {{"x", {-1}}},
      TensorInput([](int64_t) { return DataPoint{torch::arange(5, torch::kFloat)}; }),
      [](const Tensor& x) { return (x - get_variable("mean", {})).square().mean(); },
      SGD({.lr = 0.1}));
  one.train({.steps_per_epoch = 50, .max_epoch = 1});
  EXPECT_NEAR(one.variables().at("mean").tensor.item<double>(), 2, 1e-3);

  SimpleTrainer three;  // brings an anchor nearer to one point than to another
  const auto triplet = [](int64_t) {
    return DataPoint{torch::ones({2, 3}), torch::zeros({2, 3}), torch::full({2, 3}, 2.0)};
  };
  three.setup_graph(
      {{"anchor", {-1, 3}}, {"positive", {-1, 3}}, {"negative", {-1, 3}}}, TensorInput(triplet),
      [](const Tensor& anchor, const Tensor& positive, const Tensor& negative) {
        const Tensor moved = anchor + get_variable("shift", {3});
        return torch::triplet_margin_loss(moved, positive, negative);
      },
      SGD({.lr = 0.1}));
  three.train({.steps_per_epoch = 20, .max_epoch = 1});
  EXPECT_LT(three.variables().at("shift").tensor.max().item<double>(), -0.1);

  SimpleTrainer none;  // minimises a function
  none.setup_graph(
      {}, TensorInput([](int64_t) { return DataPoint(); }),
      [](const std::vector<Tensor>&) { return (get_variable("x", {}) - 3).square(); },
      SGD({.lr = 0.1}));
  none.train({.steps_per_epoch = 50, .max_epoch = 1});
  EXPECT_NEAR(none.variables().at("x").tensor.item<double>(), 3, 1e-3);
}

// "4. You want to evaluate on zero or one validation dataset"
TEST(TrainersSpec, ATrainingMayHaveAnyNumberOfValidationDatasets) {
  const auto shifted = [](double shift) {
    return FromList({{torch::zeros({2}), torch::full({2}, 1 + shift)}});
  };
  SimpleTrainer trainer;
  trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
  trainer.train({
      .callbacks = {InferenceRunner(shifted(0), {ScalarStats({"cost"}, "easy")}),
                    InferenceRunner(shifted(1), {ScalarStats({"cost"}, "harder")}),
                    InferenceRunner(shifted(2), {ScalarStats({"cost"}, "hardest")})},
      .steps_per_epoch = 4,
      .max_epoch = 50,
  });
  EXPECT_NEAR(trainer.monitors().get_latest("easy_cost"), 0, 1e-2);
  EXPECT_NEAR(trainer.monitors().get_latest("harder_cost"), 1, 1e-2);
  EXPECT_NEAR(trainer.monitors().get_latest("hardest_cost"), 4, 2e-2);
}

// "5. ... and more": that there is data, a model or a graph, or that all steps are alike.
TEST(TrainersSpec, ATrainingNeedNotHaveDataOrAModel) {
  class Collatz final : public Trainer {
   public:
    void run_step() override {
      if (number == 1) throw StopTraining("it is 1.");
      number = number % 2 == 0 ? number / 2 : 3 * number + 1;
    }
    int64_t number = 27;
  };
  Collatz trainer;
  trainer.train({.steps_per_epoch = 50, .max_epoch = 10});
  EXPECT_EQ(trainer.number, 1);
  EXPECT_EQ((trainer.epoch_num() - 1) * 50 + trainer.local_step(), 111) << "steps that it took";
}

// "If your training follows this pattern, you only need to select a trainer, and use it with its
// training interface."
// "The simplest example of such a trainer is SimpleTrainer. All it does is building your model
// (which you have to provide) once (or twice if inference is needed by callbacks) and minimizing
// its cost."
TEST(TrainersSpec, SimpleTrainerBuildsTheModelOnceOrTwiceForInference) {
  const auto towers_after = [](OwnedList<Callback> callbacks) {
    SimpleTrainer trainer;
    trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
    trainer.train({.callbacks = std::move(callbacks), .steps_per_epoch = 4, .max_epoch = 50});
    expect_learned(trainer);
    return std::pair(trainer.towers().training().size(), trainer.towers().inference().size());
  };
  EXPECT_THAT(towers_after({}), Pair(1, 0));
  EXPECT_THAT(towers_after({InferenceRunner(linear_data(), {ScalarStats({"cost"})})}), Pair(1, 1));
}

// One step of SGD from zeros, with batches of any sizes.
Line one_step(SingleCostTrainer&& trainer, std::vector<DataPoint> batches) {
  trainer.setup_graph(linear_inputs(), FeedInput(FromList(std::move(batches))), linear_cost,
                      SGD({.lr = 0.1}));
  trainer.train({.steps_per_epoch = 1, .max_epoch = 1});
  return line_of(trainer);
}

DataPoint points(double from, double to, int64_t count) {
  const Tensor x = torch::linspace(from, to, count);
  return {x, 2 * x + 1};
}

// "For data-parallel multi-GPU training, different multi-GPU trainers implement different
// distribution strategies. They take care of device placement, gradient averaging and
// synchronoization"
TEST(TrainersSpec, GradientsOfTowersAreAveraged) {
  const std::vector<DataPoint> halves = {points(-1, 0, 2), points(1, 2, 2)};
  const std::vector<DataPoint> whole = {
      {torch::cat({halves[0][0], halves[1][0]}), torch::cat({halves[0][1], halves[1][1]})}};
  const Line one = one_step(SimpleTrainer(), whole);
  for (const Line& line : {one_step(SyncMultiGPUTrainerReplicated(Devices::cpu(2)), halves),
                           one_step(SyncMultiGPUTrainerParameterServer(Devices::cpu(2)), halves),
                           one_step(SyncMultiGPUTrainer(Devices::cpu(2)), halves)}) {
    EXPECT_NEAR(line.w, one.w, 1e-6);
    EXPECT_NEAR(line.b, one.b, 1e-6);
  }
}

// The same: strategies, placement and synchronisation.
TEST(TrainersSpec, StrategiesDifferInWhoseVariablesTowersUse) {
  const auto trained = [](auto& trainer) {
    trainer.setup_graph(linear_inputs(), QueueInput(linear_data()), linear_cost, SGD({.lr = 0.1}));
    trainer.train({.steps_per_epoch = 2, .max_epoch = 50});
    for (const TowerHandle& tower : trainer.towers().training()) {
      EXPECT_EQ(tower.op().device(), c10::Device(c10::kCPU));
    }
    return trainer.variables().find("tower1/w");
  };
  SyncMultiGPUTrainerReplicated replicated(Devices::cpu(2));
  const Variable* replica = trained(replicated);
  ASSERT_NE(replica, nullptr);
  EXPECT_TRUE(torch::equal(replica->tensor, replicated.variables().at("w").tensor));
  SyncMultiGPUTrainerParameterServer server(Devices::cpu(2));
  EXPECT_EQ(trained(server), nullptr) << "one set of variables for all towers";
  AsyncMultiGPUTrainer async(Devices::cpu(2));
  EXPECT_EQ(trained(async), nullptr);
  EXPECT_NEAR(line_of(async).w, 2, 0.1);
}

// "It takes only one line of code change to use them, e.g.
// `trainer=SyncMultiGPUTrainerReplicated(...)`."
TEST(TrainersSpec, OneLineChangesTheTrainer) {
  const auto train_with = [](SingleCostTrainer&& trainer) {
    TrainConfig config{.model = LineModel(),
                       .dataflow = linear_data(),
                       .monitors = OwnedList<MonitorBase>(),
                       .max_epoch = 50};
    launch_train_with_config(config, trainer);
    expect_learned(trainer);
  };
  train_with(SimpleTrainer());
  train_with(SyncMultiGPUTrainerReplicated(Devices::cpu(3)));
}

// The same, with the numbers of GPUs: an error where there are none.
TEST(TrainersSpec, GpusThatAreNotThereAreAnError) {
  if (count_devices(c10::kCUDA) >= 3) GTEST_SKIP() << "there are three GPUs";
  EXPECT_ERROR(SyncMultiGPUTrainerReplicated({0, 1, 2}), "cannot be used");
  EXPECT_ERROR(SyncMultiGPUTrainerParameterServer({0, 1, 2}), "cannot be used");
  EXPECT_ERROR(SyncMultiGPUTrainer({0, 1, 2}), "cannot be used");
  EXPECT_ERROR(AsyncMultiGPUTrainer({0, 1, 2}), "cannot be used");
}

// "1. In each iteration, instead of taking one input tensor for all GPUs and split, all GPUs take
// tensors from the `InputSource`. So the total batch size across all GPUs is ``(batch size of
// InputSource) * #GPU``. You may want to change `steps_per_epoch` or learing rate appropriately
// according to the total batch size."
// TrainerSpec.EveryTowerTakesABatchOfItsOwn counts them.
TEST(TrainersSpec, AnEpochOverTheDataHasFewerStepsWithMoreTowers) {
  const auto batches_taken = [](SingleCostTrainer&& trainer, int64_t steps_per_epoch) {
    const auto taken = std::make_shared<int64_t>(0);
    trainer.setup_graph(
        {{"x", {-1}}}, TensorInput([taken](int64_t number) {
          *taken = number + 1;
          return DataPoint{torch::ones({2})};
        }),
        [](const Tensor& x) { return (get_variable("w", {}) * x).mean(); }, SGD({.lr = 0}));
    trainer.train({.steps_per_epoch = steps_per_epoch, .max_epoch = 1});
    return *taken;
  };
  EXPECT_EQ(batches_taken(SimpleTrainer(), 12), 12);
  EXPECT_EQ(batches_taken(SyncMultiGPUTrainerReplicated(Devices::cpu(3)), 12), 36);
  EXPECT_EQ(batches_taken(SyncMultiGPUTrainerReplicated(Devices::cpu(3)), 12 / 3), 12);
}

// "Splitting a tensor for data-parallel training (as done by frameworks like Keras) makes no sense
// at all. [...] Second, this puts unnecessary shape constraints on the data, that the inputs on
// each GPU needs to have compatible shapes."
TEST(TrainersSpec, TowersTakeBatchesOfDifferentSizes) {
  const Line line =
      one_step(SyncMultiGPUTrainerReplicated(Devices::cpu(2)), {points(-1, 0, 2), points(0, 1, 5)});
  const Line first = one_step(SimpleTrainer(), {points(-1, 0, 2)});
  const Line second = one_step(SimpleTrainer(), {points(0, 1, 5)});
  EXPECT_NEAR(line.w, (first.w + second.w) / 2, 1e-6);
  EXPECT_NEAR(line.b, (first.b + second.b) / 2, 1e-6);
}

// "2. The tower function (your model code) will get called once on each GPU. You must follow some
// rules of tower function." Here a tower is defined once on each device, and the function is called
// more often for it: to try, record and verify it.
TEST(TrainersSpec, TheTowerFunctionIsCalledOnEachDevice) {
  const Count calls = make_count();
  SyncMultiGPUTrainerReplicated trainer(Devices::cpu(3));
  trainer.setup_graph(
      linear_inputs(), QueueInput(linear_data()),
      [calls](const Tensor& x, const Tensor& y) {
        ++*calls;
        return linear_cost(x, y);
      },
      SGD({.lr = 0.1}));
  EXPECT_EQ(*calls, 3) << "to try it, on zeros";
  EXPECT_EQ(trainer.towers().training().size(), 3);
}

// "To run distributed training, first install horovod properly, then refer to the documentation of
// HorovodTrainer." Here nothing is to be installed: the engine is libtorch's.
TEST(TrainersSpec, HorovodTrainerIsANameOfDistributedTrainer) {
  static_assert(std::same_as<HorovodTrainer, DistributedTrainer>);
  TrainConfig config{.model = LineModel(),
                     .dataflow = linear_data(),
                     .monitors = OwnedList<MonitorBase>(),
                     .max_epoch = 50};
  HorovodTrainer trainer;
  launch_train_with_config(config, trainer);
  expect_learned(trainer);
}

}  // namespace
}  // namespace tensorpack
