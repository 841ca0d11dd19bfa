// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/classification_stats.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "tensorpack/utils/log_once.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Pair;

const float kNaN = std::numeric_limits<float>::quiet_NaN();

at::Tensor scores(std::vector<std::vector<float>> rows) {
  std::vector<at::Tensor> tensors;
  for (const auto& row : rows) tensors.push_back(at::tensor(row));
  return at::stack(tensors);
}

at::Tensor labels(std::vector<int64_t> values) { return at::tensor(values); }

TEST(TopKAccuracyTest, IsExactOverUnevenBatches) {
  TopKAccuracy top({1, 2});
  top.before_inference();
  top.on_fetches({scores({{3, 2, 1}, {3, 2, 1}, {3, 2, 1}}), labels({0, 1, 2})});
  top.on_fetches({scores({{1, 2, 3}}), labels({1})});
  EXPECT_THAT(top.after_inference(),
              ElementsAre(Pair("validation_top1", 1.0 / 4), Pair("validation_top2", 3.0 / 4)));
  top.before_inference();
  EXPECT_THAT(top.after_inference(), IsEmpty());
}

TEST(TopKAccuracyTest, EqualScoresAndNaNAreNoSuccess) {
  TopKAccuracy top({1});
  top.before_inference();
  top.on_fetches({scores({{1, 1, 1}, {kNaN, kNaN, kNaN}, {kNaN, 5, 1}}), labels({0, 0, 1})});
  EXPECT_THAT(top.after_inference(), ElementsAre(Pair("validation_top1", 0)));
}

TEST(TopKAccuracyTest, WrongShapesAreNamed) {
  EXPECT_ERROR(TopKAccuracy({1}).check({{"logits", {-1}}, {"label", {-1}}}),
               "'logits' must have a score for each sample and class; its shape is [-1]");
  EXPECT_ERROR(TopKAccuracy({1}).check({{"logits", {-1, 3}}, {"label", {-1, 3}}}),
               "'label' must have one class per sample");
  EXPECT_ERROR(TopKAccuracy({0}), "k is [0]");
}

TEST(TopKAccuracyTest, LabelsThatAreNoClassesAreToldWithTheirRange) {
  TopKAccuracy top({1});
  top.before_inference();
  EXPECT_ERROR(top.on_fetches({scores({{3, 2, 1}, {3, 2, 1}}), labels({1, 3})}),
               "[TopKAccuracy] 'label' has labels from 1 to 3, and 'logits' scores of 3 classes: "
               "labels are 0..2.");
  EXPECT_ERROR(top.on_fetches({scores({{3, 2, 1}}), labels({-1})}), "has labels from -1 to -1");
}

TEST(TopKAccuracyTest, AKThatAlwaysSucceedsIsTold) {
  logging::forget_logged_once();
  const auto told = [](std::vector<int64_t> ks) {
    return stdout_of([&] { TopKAccuracy(ks).check({{"logits", {-1, 3}}, {"label", {-1}}}); });
  };
  EXPECT_THAT(told({1, 2}), IsEmpty());
  EXPECT_THAT(told({1, 5}),
              HasSubstr("'logits' has 3 classes: the right one is always among the first 5."));
}

TEST(ConfusionMatrixTest, CountsWhatIsTakenForWhat) {
  at::Tensor received;
  ConfusionMatrix matrix({.classes = {"cat", "dog", "owl"},
                          .receive = [&](const at::Tensor& counts) { received = counts; }});
  matrix.check({{"logits", {-1, 3}}, {"label", {-1}}});
  matrix.before_inference();
  matrix.on_fetches({scores({{1, 0, 0}, {0, 1, 0}}), labels({0, 0})});
  matrix.on_fetches({labels({1, 2}), labels({1, 1})});  // classes instead of scores
  std::map<std::string, double> results;
  const std::string log = stdout_of([&] { results = matrix.after_inference(); });
  EXPECT_THAT(results, ElementsAre(Pair("validation_accuracy/cat", 0.5),
                                   Pair("validation_accuracy/dog", 0.5),
                                   Pair("validation_mean_class_accuracy", 0.5)));
  EXPECT_TRUE(at::equal(received, labels({1, 1, 0, 0, 1, 1, 0, 0, 0}).reshape({3, 3})));
  EXPECT_THAT(log, AllOf(HasSubstr("   cat      1      1      0"),
                         HasSubstr("   dog      0      1      1")));
}

TEST(ConfusionMatrixTest, NothingIsReportedOfNoData) {
  ConfusionMatrix matrix(2);
  matrix.before_inference();
  EXPECT_THAT(matrix.after_inference(), IsEmpty());
  EXPECT_THAT(matrix.reports(), ElementsAre("validation_mean_class_accuracy",
                                            "validation_accuracy/0", "validation_accuracy/1"));
}

TEST(ConfusionMatrixTest, WrongInputIsNamed) {
  EXPECT_ERROR(ConfusionMatrix(0), "at least one class");
  ConfusionMatrix matrix(2);
  EXPECT_ERROR(matrix.check({{"logits", {-1, 3}}, {"label", {-1}}}),
               "'logits' must have 2 scores or one class per sample; its shape is [-1, 3]");
  matrix.before_inference();
  EXPECT_ERROR(matrix.on_fetches({labels({2}), labels({0})}), "a class that is not in 0..1");
  EXPECT_ERROR(matrix.on_fetches({labels({0}), labels({-1})}), "a class that is not in 0..1");
}

}  // namespace
}  // namespace tensorpack
