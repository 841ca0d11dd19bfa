// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/inference_stats.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;
using testing::ThrowsMessage;

using Results = std::map<std::string, double>;

Results run_pass(Inferencer& inferencer, const std::vector<std::vector<at::Tensor>>& datapoints) {
  inferencer.before_inference();
  for (const auto& values : datapoints) inferencer.on_fetches(values);
  return inferencer.after_inference();
}

at::Tensor vec(std::vector<float> values) { return at::tensor(values); }
at::Tensor scalar(double value) { return at::scalar_tensor(value); }

// A datapoint and how many samples it has.
struct Sized {
  std::vector<at::Tensor> values;
  int64_t samples;
};

Results run_sized_pass(Inferencer& inferencer, const std::vector<Sized>& datapoints) {
  inferencer.before_inference();
  for (const auto& [values, samples] : datapoints) inferencer.take(values, samples);
  return inferencer.after_inference();
}

TEST(ScalarStatsTest, BatchesCountByTheirSamples) {
  ScalarStats stats({"wrong"});
  EXPECT_THAT(run_sized_pass(stats, {{{scalar(0)}, 8}, {{scalar(1)}, 1}}),
              ElementsAre(Pair("validation_wrong", DoubleEq(1.0 / 9))));
}

TEST(ScalarStatsTest, EqualBatchesHaveTheMeanOfTheirValuesToTheBit) {
  ScalarStats stats({"cost"});
  const std::vector<double> values = {0.1, 0.7, 1e-9, 3.3};
  double sum = 0;
  std::vector<Sized> batches;
  for (const double value : values) {
    sum += value;
    batches.push_back({{at::scalar_tensor(value, at::kDouble)}, 100});
  }
  EXPECT_EQ(run_sized_pass(stats, batches).at("validation_cost"), sum / 4);
}

// The mean over no samples is NaN.
TEST(ScalarStatsTest, ABatchWithoutSamplesDoesNotCount) {
  ScalarStats stats({"cost"});
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(run_sized_pass(stats, {{{scalar(2)}, 3}, {{scalar(nothing)}, 0}}),
              ElementsAre(Pair("validation_cost", 2)));
  EXPECT_THAT(run_sized_pass(stats, {{{scalar(nothing)}, 0}}), IsEmpty());
}

TEST(ScalarStatsTest, ReportsTheMeanOverDatapoints) {
  ScalarStats stats({"cost", "accuracy"});
  EXPECT_THAT(stats.fetches(), ElementsAre("cost", "accuracy"));
  EXPECT_THAT(run_pass(stats, {{scalar(1), scalar(0)}, {scalar(2), scalar(1)}}),
              ElementsAre(Pair("validation_accuracy", 0.5), Pair("validation_cost", 1.5)));
}

TEST(ScalarStatsTest, EveryPassStartsAnew) {
  ScalarStats stats({"cost"}, "");
  run_pass(stats, {{scalar(100)}});
  EXPECT_THAT(run_pass(stats, {{scalar(3)}}), ElementsAre(Pair("cost", 3)));
}

TEST(ScalarStatsTest, WantsScalars) {
  EXPECT_THAT(
      [] {
        ScalarStats({"cost"}).check({{.name = "cost", .shape = {2, 3}}});
      },
      ThrowsMessage<Error>(HasSubstr("'cost' is not a scalar: its shape is [2, 3]")));
  EXPECT_THAT([] { ScalarStats({}); }, ThrowsMessage<Error>(HasSubstr("there are no names")));
}

TEST(ClassificationErrorTest, IsExactWithUnevenBatches) {
  ClassificationError error;
  EXPECT_THAT(error.fetches(), ElementsAre("incorrect_vector"));
  EXPECT_THAT(run_pass(error, {{vec({1, 0, 0, 0})}, {vec({1})}}),
              ElementsAre(Pair("validation_error", DoubleEq(0.4))));
}

TEST(ClassificationErrorTest, TakesBooleans) {
  ClassificationError error("wrong", "error");
  EXPECT_THAT(run_pass(error, {{vec({1, 0}).to(at::kBool)}}), ElementsAre(Pair("error", 0.5)));
}

TEST(ClassificationErrorTest, WantsAVector) {
  EXPECT_THAT([] { ClassificationError().check({{.name = "incorrect_vector"}}); },
              ThrowsMessage<Error>(HasSubstr("must have one dimension")));
}

TEST(BinaryClassificationStatsTest, ReportsPrecisionAndRecall) {
  BinaryClassificationStats stats("prediction", "label");
  EXPECT_THAT(
      run_pass(stats, {{vec({1, 1, 0}), vec({1, 0, 0})}, {vec({1, 0}), vec({1, 1})}}),
      ElementsAre(Pair("val_precision", DoubleEq(2.0 / 3)), Pair("val_recall", DoubleEq(2.0 / 3))));
}

TEST(BinaryClassificationStatsTest, RatiosOfNothingAreZero) {
  BinaryClassificationStats stats("prediction", "label", "p");
  EXPECT_THAT(run_pass(stats, {{vec({0}), vec({0})}}),
              ElementsAre(Pair("p_precision", 0), Pair("p_recall", 0)));
}

TEST(InferenceStatsTest, APassWithoutDataReportsNothing) {
  ScalarStats scalars({"cost"});
  ClassificationError error;
  BinaryClassificationStats binary("prediction", "label");
  EXPECT_THAT(run_pass(scalars, {}), IsEmpty());
  EXPECT_THAT(run_pass(error, {}), IsEmpty());
  EXPECT_THAT(run_pass(binary, {}), IsEmpty());
}

}  // namespace
}  // namespace tensorpack
