// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/summary.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// The cost of step n is n^2: the data is one number that nothing learns from.
at::Tensor squares(const at::Tensor& x) {
  const at::Tensor cost = named("cost", x.square().mean() + 0 * get_variable("w", {}));
  add_moving_summary(cost);
  add_moving_summary("half", cost / 2, {.decay = 0.5});
  return cost;
}

FromList numbers(int count) {
  std::vector<DataPoint> points;
  for (int i = 1; i <= count; ++i) points.push_back({at::full({1}, i, at::kFloat)});
  return FromList(std::move(points));
}

// Trains with the callback and gives the history of a scalar.
std::vector<std::pair<int64_t, double>> history(MergeAllSummariesOptions options,
                                                const std::string& name, int64_t steps = 4) {
  SimpleTrainer trainer;
  trainer.setup_graph({{"x", {-1}}}, FeedInput(numbers(8)), squares, SGD({.lr = 0}));
  trainer.train({
      .callbacks = {MergeAllSummaries(options)},
      .steps_per_epoch = steps,
      .max_epoch = 2,
  });
  return trainer.monitors().get_history(name);
}

// By the definition: weights decay^age, normalised.
double average(int steps, double decay) {
  double sum = 0;
  double weights = 0;
  for (int i = 1; i <= steps; ++i) {
    sum = sum * decay + i * i;
    weights = weights * decay + 1;
  }
  return sum / weights;
}

TEST(SummaryTest, LastStepOfEachEpochReportsTheCorrectedAverage) {
  const auto cost = history({}, "cost");
  ASSERT_EQ(cost.size(), 2);
  EXPECT_EQ(cost[0].first, 4);
  EXPECT_EQ(cost[1].first, 8);
  EXPECT_NEAR(cost[0].second, average(4, 0.95), 1e-4);
  EXPECT_NEAR(cost[1].second, average(8, 0.95), 1e-4);
  const auto half = history({}, "half");
  EXPECT_NEAR(half[1].second, average(8, 0.5) / 2, 1e-4);
}

TEST(SummaryTest, FirstValueCountsInFull) {
  EXPECT_EQ(history({}, "cost", /*steps=*/1)[0].second, 1);
}

TEST(SummaryTest, PeriodReportsInBetween) {
  const auto cost = history({.period = 3}, "cost");
  ASSERT_EQ(cost.size(), 4);
  EXPECT_EQ(cost[0].first, 3);
  EXPECT_EQ(cost[1].first, 4);
  EXPECT_EQ(cost[2].first, 7);
  EXPECT_EQ(cost[3].first, 8);
  EXPECT_THAT([] { MergeAllSummaries({.period = -1}); },
              ThrowsMessage<Error>(HasSubstr("the period must not be negative, got -1")));
}

TEST(SummaryTest, AveragesAreNotSaved) {
  SimpleTrainer trainer;
  trainer.setup_graph({{"x", {-1}}}, FeedInput(numbers(1)), squares, SGD({.lr = 0}));
  EXPECT_FALSE(trainer.variables().at("EMA/cost").is_saved());
  EXPECT_TRUE(moving_summaries(trainer.graph()).empty()) << "no run yet, so no value";
}

TEST(SummaryTest, OnlyTheFirstTrainingTowerKeepsThem) {
  Graph graph;
  const at::Tensor x = at::ones({});
  {
    TowerContext tower(graph, {.is_training = false});
    add_moving_summary("x", x);
  }
  {
    TowerContext tower(graph, {.index = 1, .total = 2});
    add_moving_summary("x", x);
  }
  EXPECT_EQ(graph.variables().find("EMA/x"), nullptr);
}

TEST(SummaryTest, WrongUseIsAnError) {
  Graph graph;
  EXPECT_THAT([] { add_moving_summary("x", at::ones({})); },
              ThrowsMessage<Error>(HasSubstr("it is called outside a tower function")));
  TowerContext tower(graph);
  EXPECT_THAT([] { add_moving_summary(at::ones({})); },
              ThrowsMessage<Error>(HasSubstr("the tensor has no name.")));
  EXPECT_THAT([] { add_moving_summary("x", at::ones({3})); },
              ThrowsMessage<Error>(HasSubstr("'x' must be a scalar, got a tensor of shape [3]")));
  EXPECT_THAT([] { add_moving_summary("x", at::ones({}), {.decay = 1}); },
              ThrowsMessage<Error>(HasSubstr("the decay of 'x' is 1")));
  add_moving_summary("x", at::ones({}));
  EXPECT_THAT([] { add_moving_summary("x", at::ones({})); },
              ThrowsMessage<Error>(HasSubstr("there is already a summary 'x' in this tower")));
}

}  // namespace
}  // namespace tensorpack
