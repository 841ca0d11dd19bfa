// SPDX-License-Identifier: Apache-2.0
// Inputs that data and callers may leave out.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/callbacks/callback_factory.h"
#include "tensorpack/callbacks/inference_runner.h"
#include "tensorpack/callbacks/inference_stats.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/callbacks/process_tensors.h"
#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/train/auto_resume.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using testing::ElementsAre;

// What a generator of pictures begins with: drawn in every step, unless it is given.
TensorSpec noise() {
  const auto draw = [](const Shape& shape) { return at::randn(shape); };
  return {.name = "z", .shape = {-1, 3}, .default_value = draw};
}

at::Tensor cost(const at::Tensor& z, const at::Tensor& x) {
  const at::Tensor fake = named("fake", z * get_variable("w", {}, init::ones()));
  return named("cost", (fake.sum(1) - x).square().mean());
}

Model model() {
  return {.inputs = {noise(), {"x", {-1}}}, .build_graph = cost, .optimizer = SGD({.lr = 0.1})};
}

// Four batches, of x alone.
FromList data(int64_t size = 2) {
  return FromList(std::vector<DataPoint>(4, DataPoint{at::arange(size, at::kFloat)}));
}

TrainConfig config(std::vector<at::Tensor>* seen, int64_t epochs) {
  return {.model = model(),
          .dataflow = data(),
          .callbacks = {ModelSaver(), ProcessTensors({"z"},
                                                     [seen](const std::vector<at::Tensor>& values) {
                                                       if (seen) seen->push_back(values[0].clone());
                                                     })},
          .extra_callbacks = OwnedList<Callback>(),
          .monitors = OwnedList<MonitorBase>(),
          .max_epoch = epochs};
}

class DefaultInputsTest : public testing::Test {
 protected:
  DefaultInputsTest() {
    set_global_seed(3);
    set_logger_dir(dir_.path(), LogDirAction::kKeep);
  }
  ~DefaultInputsTest() override { reset_logger_dir(); }

  TempDir dir_;
};

TEST_F(DefaultInputsTest, EveryStepDrawsAnotherOfTheSizeOfTheBatch) {
  std::vector<at::Tensor> seen;
  stdout_of([&] { launch_train_with_config(config(&seen, 1), SimpleTrainer()); });
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].sizes(), (at::IntArrayRef{2, 3}));
  EXPECT_FALSE(at::equal(seen[0], seen[1]));
}

TEST_F(DefaultInputsTest, AResumedTrainingDrawsWhatAnUninterruptedOneDoes) {
  std::vector<at::Tensor> whole, first, second;
  stdout_of([&] {
    launch_train_with_config(config(&first, 1), SimpleTrainer());
    launch_train_with_config(AutoResumeTrainConfig(config(&second, 2)), SimpleTrainer());
    std::filesystem::remove_all(dir_.path());
    launch_train_with_config(config(&whole, 2), SimpleTrainer());
  });
  ASSERT_EQ(whole.size(), 8u);
  ASSERT_EQ(second.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(at::equal(whole[i], first[i])) << i;
    EXPECT_TRUE(at::equal(whole[4 + i], second[i])) << i;
  }
}

TEST_F(DefaultInputsTest, DataAndFeedsThatHaveItWin) {
  SimpleTrainer trainer;
  const DataPoint both{at::full({2, 3}, 5.F), at::zeros({2})};
  trainer.setup_graph(model().inputs, FeedInput(FromList({both})), cost, SGD());
  const auto look = [](Callback& callback) {
    TrainerBase& t = callback.trainer();
    EXPECT_EQ(t.sess().run(t.train_op(), {"z"})[0].mean().item<float>(), 5);
    const Feeds fed{{"z", at::full({2, 3}, 7.F)}};
    EXPECT_EQ(t.sess().run(t.train_op(), {"z"}, fed)[0].mean().item<float>(), 7);
    const Feeds x_alone{{"x", at::zeros({4})}};
    EXPECT_EQ(t.sess().run(t.train_op(), {"z"}, x_alone)[0].size(0), 4);
  };
  stdout_of([&] {
    trainer.train({.callbacks = {CallbackFactory({.before_train = look})},
                   .steps_per_epoch = 0,
                   .max_epoch = 1});
  });
}

TEST_F(DefaultInputsTest, ValidationNeedsNoneEither) {
  SimpleTrainer trainer;
  trainer.setup_graph(model().inputs, FeedInput(data()), cost, SGD({.lr = 0.1}));
  std::vector<Shape> shapes;
  stdout_of([&] {
    trainer.train({.callbacks = {InferenceRunner(data(6), {ScalarStats({"cost"})})},
                   .steps_per_epoch = 4,
                   .max_epoch = 1});
  });
  EXPECT_GT(trainer.monitors().get_latest("validation_cost"), 0);
}

TEST_F(DefaultInputsTest, OutputsMayDependOnOneThatACallLeavesOut) {
  const auto predictor = [](std::vector<std::string> inputs) {
    return OfflinePredictor({.inputs = model().inputs,
                             .tower_func = cost,
                             .session_init = DictRestore({{"w", at::full({}, 2.F)}}),
                             .input_names = std::move(inputs),
                             .output_names = {"fake", "cost"}});
  };
  const OfflinePredictor from_x = predictor({"x"});
  const auto first = from_x(at::zeros({5}));
  EXPECT_EQ(first[0].sizes(), (at::IntArrayRef{5, 3}));
  EXPECT_FALSE(at::equal(first[0], from_x(at::zeros({5}))[0]));
  const OfflinePredictor from_both = predictor({});
  EXPECT_TRUE(at::equal(from_both(at::ones({4, 3}), at::zeros({4}))[0], at::full({4, 3}, 2.F)));
  EXPECT_ERROR(predictor({"z"}), "the output 'cost' depends on the input 'x'");
}

TEST_F(DefaultInputsTest, ANumberFillsWhatOtherInputsMeasure) {
  const OfflinePredictor predict({
      .inputs = {{"image", {-1, 3, -1, -1}},
                 {.name = "edges", .shape = {-1, -1, -1}, .dtype = at::kLong, .default_value = 7}},
      .tower_func = [](const at::Tensor&, const at::Tensor& e) { named("e", e + 0); },
      .input_names = {"image"},
      .output_names = {"e"},
  });
  EXPECT_TRUE(at::equal(predict(at::zeros({2, 3, 8, 8}))[0], at::full({2, 8, 8}, 7, at::kLong)));
}

TEST_F(DefaultInputsTest, ErrorsNameTheInputsWithADefault) {
  const auto train = [](std::vector<TensorSpec> inputs, DataPoint point) {
    SimpleTrainer trainer;
    trainer.setup_graph(std::move(inputs), FeedInput(FromList({std::move(point)})), cost, SGD());
    stdout_of([&] { trainer.train({.steps_per_epoch = 1, .max_epoch = 1}); });
  };
  EXPECT_ERROR(train(model().inputs, {at::zeros({2}), at::zeros({2}), at::zeros({2})}),
               "a datapoint has 3 components, the input signature has 2 (z with a default, x)");
  TensorSpec wrong = noise();
  wrong.default_value = [](const Shape&) { return at::zeros({1}); };
  EXPECT_ERROR(train({wrong, {"x", {-1}}}, {at::zeros({2})}),
               "'z' must have shape [-1, 3], got [1]");
  wrong.default_value = [](const Shape&) -> at::Tensor { throw std::runtime_error("no noise"); };
  EXPECT_ERROR(train({wrong, {"x", {-1}}}, {at::zeros({2})}), "in the default of the input 'z'");
  wrong.default_value = [](const Shape&) { return at::Tensor(); };
  EXPECT_ERROR(train({wrong, {"x", {-1}}}, {at::zeros({2})}), "returned an undefined tensor");
}

}  // namespace
}  // namespace tensorpack
