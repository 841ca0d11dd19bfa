// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/predict/offline_predictor.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/utils/error.h"
#include "tests/support/capture.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::HasSubstr;
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

}  // namespace
}  // namespace tensorpack
