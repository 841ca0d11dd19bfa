// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/dataflow/fake_data.h"
#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/predict/dataset_predictor.h"
#include "tensorpack/predict/multi_tower_predictor.h"
#include "tensorpack/utils/error.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::ThrowsMessage;

// Names `logits` (of x), `cost` (of both), and is not itself in prediction: half of it is dropped.
void tower(const at::Tensor& x, const at::Tensor& label) {
  const at::Tensor logits =
      named("logits", get_variable("w", {}) * Dropout("drop", x, {.rate = 0.5}));
  named("cost", (logits - label).square().mean());
}

PredictConfig config(std::vector<std::string> inputs, std::vector<std::string> outputs) {
  return {
      .inputs = {{"x", {-1}}, {"label", {-1}}},
      .tower_func = tower,
      .session_init = DictRestore({{"w", at::full({}, 3.0F)}}),
      .input_names = std::move(inputs),
      .output_names = std::move(outputs),
  };
}

TEST(OfflinePredictorTest, PredictsWithRestoredVariablesInPredictionMode) {
  const OfflinePredictor predict(config({}, {"cost", "logits"}));
  const at::Tensor x = at::arange(4, at::kFloat);
  const std::vector<at::Tensor> values = predict(x, at::zeros({4}));
  ASSERT_EQ(values.size(), 2);
  EXPECT_EQ(values[0].item<float>(), 9.0F * 14 / 4);
  EXPECT_TRUE(at::equal(values[1], 3 * x));
}

TEST(OfflinePredictorTest,
     ANumberThatTheFunctionReadsOnTheHostIsFollowedWhereItsChangeIsAnnounced) {
  double threshold = 0;
  OfflinePredictor predict({
      .inputs = {{"x", {-1}}},
      .tower_func = [&](const at::Tensor& x) { named("above", (x > threshold).sum()); },
      .output_names = {"above"},
  });
  const at::Tensor x = at::tensor({-1.0F, 0.5F, 2.0F});
  EXPECT_EQ(predict(x)[0].item<int64_t>(), 2);
  threshold = 1;
  predict.graph().announce_change();
  EXPECT_EQ(predict(x)[0].item<int64_t>(), 1);
  threshold = 5;
  EXPECT_THAT(  // before run 3
      [&] { predict(x); },
      ThrowsMessage<Error>(HasSubstr("its argument 'other' was 1. when recorded and is 5.")));
}

TEST(OfflinePredictorTest, AModelThatNothingIsRestoredToIsToldOf) {
  PredictConfig untrained = config({"x"}, {"logits"});
  untrained.session_init = {};
  const char* told = "No session_init is given: the model has the first values of its 1 variable.";
  EXPECT_THAT(stdout_of([&] { OfflinePredictor(std::move(untrained)); }), HasSubstr(told));
  EXPECT_THAT(stdout_of([&] { OfflinePredictor(config({"x"}, {"logits"})); }),
              testing::Not(HasSubstr(told)));
}

TEST(OfflinePredictorTest, InputsThatOutputsDoNotNeedMayBeLeftOut) {
  const OfflinePredictor predict(config({"x"}, {"logits"}));
  for (int64_t batch : {1, 2, 7}) {
    EXPECT_TRUE(at::equal(predict(at::ones({batch}))[0], at::full({batch}, 3.0F)));
  }
}

TEST(OfflinePredictorTest, BatchNormOfAnotherInputIsNoReasonToNeedIt) {
  const OfflinePredictor predict({
      .inputs = {{"x", {-1}}, {"image", {-1, 3, 8, 8}}},
      .tower_func =
          [](const at::Tensor& x, const at::Tensor& image) {
            named("twice", 2 * x);
            named("normal", BatchNorm("bn", image));
          },
      .input_names = {"x"},
      .output_names = {"twice"},
  });
  EXPECT_TRUE(at::equal(predict(at::ones({3}))[0], at::full({3}, 2.0F)));
}

TEST(OfflinePredictorTest, InputsThatOutputsNeedMayNot) {
  EXPECT_THAT(
      [] {
        OfflinePredictor(config({"x"}, {"logits", "cost"}));
      },
      ThrowsMessage<Error>(HasSubstr("the output 'cost' depends on the input 'label', "
                                     "which is not among the predictor's inputs (x).")));
  EXPECT_THAT([] { OfflinePredictor(config({"x"}, {"label"})); },
              ThrowsMessage<Error>(HasSubstr("the output 'label' depends on the input 'label'")));
}

TEST(OfflinePredictorTest, AnOutputThatIsNotThereIsAnsweredWithThoseThatAre) {
  EXPECT_THAT([] { OfflinePredictor(config({"x"}, {"logit"})); },
              ThrowsMessage<Error>(testing::AllOf(
                  HasSubstr("[predictor 'predict'] no tensor, input or variable named 'logit'. Did "
                            "you mean 'logits'? Known: "),
                  HasSubstr("cost"), HasSubstr("label"))));
}

TEST(OfflinePredictorTest, InputsComeInTheOrderOfTheirNames) {
  const OfflinePredictor predict(config({"label", "x"}, {"x"}));
  EXPECT_TRUE(at::equal(predict(at::zeros({2}), at::ones({2}))[0], at::ones({2})));
}

TEST(OfflinePredictorTest, WrongCountNamesBothNumbers) {
  const OfflinePredictor predict(config({"x"}, {"logits"}));
  EXPECT_THAT([&] { predict(at::ones({2}), at::ones({2})); },
              ThrowsMessage<Error>(HasSubstr("it takes 1 tensor (x) and was called with 2.")));
}

TEST(OfflinePredictorTest, UnknownNamesAreErrors) {
  EXPECT_THAT([] { OfflinePredictor(config({"y"}, {"logits"})); },
              ThrowsMessage<Error>(HasSubstr("no input named 'y'.")));
  EXPECT_THAT([] { OfflinePredictor(config({"x"}, {"logit"})); },
              ThrowsMessage<Error>(AllOf(HasSubstr("named 'logit'"), HasSubstr("'logits'"))));
  EXPECT_THAT([] { OfflinePredictor(config({"x"}, {})); },
              ThrowsMessage<Error>(HasSubstr("there are no outputs.")));
}

TEST(OfflinePredictorTest, AnInputThatIsNamedTwiceIsAnError) {
  EXPECT_THAT(
      [] {
        OfflinePredictor(config({"x", "x"}, {"logits"}));
      },
      ThrowsMessage<Error>(HasSubstr("the input 'x' is named twice.")));
}

TEST(OfflinePredictorTest, WrongShapeIsAnError) {
  const OfflinePredictor predict(config({"x"}, {"logits"}));
  EXPECT_THAT(
      [&] {
        predict(at::ones({2, 2}));
      },
      ThrowsMessage<Error>(HasSubstr("'x' must have shape [-1], got [2, 2].")));
}

TEST(OfflinePredictorTest, LeftOutInputsHaveTheSizesOfThoseThatAreGiven) {
  // `tokens` is [N, T]; the mask of all pairs and the label are left out.
  const OfflinePredictor predict({
      .inputs = {{"tokens", {-1, -1}}, {"pairs", {-1, -1, -1}}, {"label", {-1, -1}}, {"id", {-1}}},
      .tower_func =
          [](const at::Tensor& tokens, const at::Tensor& pairs, const at::Tensor& label,
             const at::Tensor& id) {
            named("twice", tokens * 2);
            named("cost",
                  (at::bmm(pairs, (tokens - label).unsqueeze(2)).squeeze(2).sum(1) + id).sum());
          },
      .input_names = {"tokens"},
      .output_names = {"twice"},
  });
  for (const auto& shape : std::vector<std::vector<int64_t>>{{1, 64}, {3, 5}, {2, 1}}) {
    EXPECT_TRUE(at::equal(predict(at::ones(shape))[0], at::full(shape, 2.0F)));
  }
}

TEST(OfflinePredictorTest, ALeftOutInputKeepsATrialSizeOfItsOwn) {
  // One-hot labels of 10 classes have nothing to do with the size of an image.
  const OfflinePredictor predict({
      .inputs = {{"image", {-1, -1}}, {"label", {-1, -1}, at::kFloat, {2, 10}}, {"mask", {-1, -1}}},
      .tower_func =
          [](const at::Tensor& image, const at::Tensor& label, const at::Tensor& mask) {
            named("y", image * 2);
            named("cost", ((image * mask).sum(1, true) * at::ones({10}) - label).sum());
          },
      .input_names = {"image"},
      .output_names = {"y"},
  });
  EXPECT_TRUE(at::equal(predict(at::ones({3, 5}))[0], at::full({3, 5}, 2.0F)));
}

TEST(OfflinePredictorTest, ALeftOutInputWhoseSizeIsUnknownIsNamedWithWhatNeedsIt) {
  const OfflinePredictor predict({
      .inputs = {{"x", {-1, 3}}, {"target", {-1, -1}, at::kFloat, {2, 3}}},
      .tower_func =
          [](const at::Tensor& x, const at::Tensor& target) {
            const at::Tensor long_x = x.repeat({1, x.size(0)}).narrow(1, 0, x.size(0) + 1);
            named("y", x * 2);
            named("cost", (long_x - target).square().mean());
          },
      .input_names = {"x"},
      .output_names = {"y"},
  });
  EXPECT_TRUE(at::equal(predict(at::ones({2, 3}))[0], at::full({2, 3}, 2.0F)));
  EXPECT_THAT(
      [&] {
        predict(at::ones({5, 3}));
      },
      ThrowsMessage<Error>(
          AllOf(HasSubstr("with the input 'target', which is left out and is zeros of [5, 3]"),
                HasSubstr("('cost' is computed from it)"))));
}

TEST(OfflinePredictorTest, AnInputThatIsWrongItselfSaysNothingOfOnesThatAreLeftOut) {
  const OfflinePredictor predict({
      .inputs = {{"x", {-1, 3}}, {"target", {-1}}},
      .tower_func = [](const at::Tensor& x, const at::Tensor&) { named("y", x * 2); },
      .input_names = {"x"},
      .output_names = {"y"},
  });
  for (const at::Tensor& x : {at::ones({3}), at::ones({2, 3}, at::kLong), at::Tensor()}) {
    EXPECT_THAT([&] { predict(x); },
                ThrowsMessage<Error>(AllOf(HasSubstr("[input] 'x'"), Not(HasSubstr("left out")))));
  }
}

// A backbone that has weights, and a head that may have none.
void backbone_and_head(const at::Tensor& x) {
  const at::Tensor features = named("features", x * get_variable("backbone", {}, init::ones()));
  named("y", features * get_variable("head", {}, init::ones()));
}

PredictConfig without_head(std::vector<std::string> outputs) {
  return {.inputs = {{"x", {-1}}},
          .tower_func = backbone_and_head,
          .session_init = DictRestore({{"backbone", at::full({}, 3.0F)}}),
          .output_names = std::move(outputs)};
}

TEST(OfflinePredictorTest, AWeightThatIsMissingIsAnErrorWhereAnOutputNeedsIt) {
  EXPECT_THAT(
      [] {
        OfflinePredictor(without_head({"features", "y"}));
      },
      ThrowsMessage<Error>(AllOf(HasSubstr("[predictor] what is restored has no value for "
                                           "1 variable that the outputs (features, y) "
                                           "need: head."),
                                 HasSubstr("PredictConfig::allow_missing"))));
  EXPECT_THROW(MultiTowerOfflinePredictor(without_head({"y"}), Devices::cpu(2)), Error);
  EXPECT_THROW(OfflinePredictor(without_head({"head"})), Error) << "a variable may be an output";
  const OfflinePredictor predict(without_head({"features"}));
  EXPECT_TRUE(at::equal(predict(at::ones({2}))[0], at::full({2}, 3.0F)));
}

TEST(OfflinePredictorTest, AWeightMayBeMissingIfThatIsAskedFor) {
  PredictConfig config = without_head({"y"});
  config.allow_missing = true;
  EXPECT_EQ(OfflinePredictor(std::move(config))(at::ones({1}))[0].item<float>(), 3);
  PredictConfig ignoring = without_head({"y"});
  ignoring.session_init = DictRestore({{"backbone", at::full({}, 3.0F)}}, {.ignore = {"head"}});
  EXPECT_EQ(OfflinePredictor(std::move(ignoring))(at::ones({1}))[0].item<float>(), 3);
}

TEST(OfflinePredictorTest, AWeightThatDoesNotFitIsMissing) {
  const auto config = [](bool allow_missing) {
    PredictConfig config = without_head({"y"});
    config.session_init = DictRestore({{"backbone", at::full({}, 3.0F)}, {"head", at::zeros({7})}},
                                      {.relaxed = true});
    config.allow_missing = allow_missing;
    return config;
  };
  EXPECT_THAT([&] { OfflinePredictor(config(false)); },
              ThrowsMessage<Error>(HasSubstr("that the outputs (y) need: head.")));
  EXPECT_EQ(OfflinePredictor(config(true))(at::ones({1}))[0].item<float>(), 3);
}

TEST(OfflinePredictorTest, SeveralFilesTogetherMayHaveAllWeights) {
  PredictConfig config = without_head({"y"});
  config.session_init = ChainInit({DictRestore({{"backbone", at::full({}, 3.0F)}}),
                                   DictRestore({{"head", at::full({}, 5.0F)}})});
  EXPECT_EQ(OfflinePredictor(std::move(config))(at::ones({1}))[0].item<float>(), 15);
}

// What is validated in a training, predicted with averages.
void averaged(const at::Tensor& x) {
  const auto averages = use_moving_averages();
  backbone_and_head(x);
}

PredictConfig with_averages(NamedTensors values) {
  return {.inputs = {{"x", {-1}}},
          .tower_func = averaged,
          .session_init = DictRestore(std::move(values)),
          .output_names = {"y"}};
}

NamedTensors weights() { return {{"backbone", at::full({}, 3.0F)}, {"head", at::full({}, 5.0F)}}; }

TEST(OfflinePredictorTest, AveragesPredictWhereTheFunctionUsesThem) {
  NamedTensors values = weights();
  values["backbone/MovingAverage"] = at::full({}, 0.5F);
  values["head/MovingAverage"] = at::full({}, 0.25F);
  const at::Tensor x = at::ones({2});
  const at::Tensor expected = at::full({2}, 0.125F);
  EXPECT_TRUE(at::equal(OfflinePredictor(with_averages(values))(x)[0], expected));
  const MultiTowerOfflinePredictor towers(with_averages(values), Devices::cpu(2));
  EXPECT_TRUE(at::equal(towers[1](x)[0], expected));
  DatasetPredictor data(with_averages(values), FakeData({{.shape = {2}}}, {.size = 3}));
  EXPECT_EQ(data.all().size(), 3U);
  // Weights themselves outside the scope.
  PredictConfig both =
      with_averages({{"m/w", at::full({}, 5.0F)}, {"m/w/MovingAverage", at::full({}, 0.25F)}});
  both.tower_func = [](const at::Tensor& x) {
    VariableScope shared("m", Reuse::kAuto);
    const at::Tensor own = get_variable("w", {});
    const auto averages = use_moving_averages();
    named("y", x * own / get_variable("w", {}));
  };
  both.output_names = {"m/y"};
  EXPECT_EQ(OfflinePredictor(std::move(both))(x)[0][0].item<float>(), 20);
}

TEST(OfflinePredictorTest, AVariableWithoutAnAverageIsUsedItselfAndLogged) {
  NamedTensors values = weights();
  values["head/MovingAverage"] = at::full({}, 0.25F);
  float y = 0;
  const std::string log = stdout_of(
      [&] { y = OfflinePredictor(with_averages(values))(at::ones({1}))[0].item<float>(); });
  EXPECT_EQ(y, 0.75F);
  EXPECT_THAT(log,
              HasSubstr("Without a moving average, 1 variable is used as restored: backbone."));
}

TEST(OfflinePredictorTest, ACheckpointWithoutAveragesIsAnError) {
  EXPECT_THAT([] { OfflinePredictor(with_averages(weights())); },
              ThrowsMessage<Error>(HasSubstr("[use_moving_averages] what is restored has a moving "
                                             "average of no variable, and the model predicts with "
                                             "those of backbone, head.")));
  EXPECT_THROW(OfflinePredictor(with_averages({{"backbone/MovingAverage", at::ones({})}})), Error)
      << "the head has neither a value nor an average";
}

}  // namespace
}  // namespace tensorpack
