// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/tower/summary.h"

#include <gmock/gmock.h>

#include "tensorpack/callbacks/merge_all_summaries.h"
#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tests/support/capture.h"
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

FromList count_to(int count) {
  std::vector<DataPoint> points;
  for (int i = 1; i <= count; ++i) points.push_back({at::full({1}, i, at::kFloat)});
  return FromList(std::move(points));
}

// Trains with the callback and gives the history of a scalar.
std::vector<std::pair<int64_t, double>> history(MergeAllSummariesOptions options,
                                                const std::string& name, int64_t steps = 4) {
  SimpleTrainer trainer;
  trainer.setup_graph({{"x", {-1}}}, FeedInput(count_to(8)), squares, SGD({.lr = 0}));
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

// Writes down everything but scalars.
class Recorder final : public MonitorBase {
 public:
  explicit Recorder(std::vector<std::string>* seen) : seen_(seen) {}
  void process_image(const std::string& name, const Image& image, const LoopState& loop) override {
    seen_->push_back(fmt::format("image {} {}x{}x{} at {}", name, image.height(), image.width(),
                                 image.channels(), loop.global_step));
  }
  void process_histogram(const std::string& name, const Histogram& histogram,
                         const LoopState& loop) override {
    seen_->push_back(fmt::format("histogram {} of {} max {} at {}", name, histogram.count,
                                 histogram.max, loop.global_step));
  }
  void process_text(const std::string& name, const std::string& text,
                    const LoopState& loop) override {
    seen_->push_back(fmt::format("text {} '{}' at {}", name, text, loop.global_step));
  }

 private:
  std::vector<std::string>* seen_;
};

// Trains two epochs of two steps on 1, 2, 3, 4 and returns what a Recorder saw.
template <typename Model>
std::vector<std::string> recorded(SimpleTrainer& trainer, const Model& model) {
  std::vector<std::string> seen;
  trainer.setup_graph({{"x", {-1}}}, FeedInput(count_to(4)), model, SGD({.lr = 0}));
  trainer.train({
      .callbacks = {MergeAllSummaries()},
      .monitors = OwnedList<MonitorBase>(Recorder(&seen)),
      .steps_per_epoch = 2,
      .max_epoch = 2,
  });
  return seen;
}

TEST(SummaryTest, TensorsAreThoseOfTheLastStepOfTheEpoch) {
  SimpleTrainer trainer;
  const auto seen = recorded(trainer, [](const at::Tensor& x) {
    add_tensor_summary("x", x, {SummaryType::kHistogram, SummaryType::kMean, SummaryType::kRms});
    add_activation_summary("act", at::stack({x, 0 * x}));
    return squares(x);
  });
  EXPECT_THAT(seen, testing::UnorderedElementsAre(
                        "histogram x-histogram of 1 max 2 at 2",
                        "histogram activation-summary/act-histogram of 2 max 2 at 2",
                        "histogram x-histogram of 1 max 4 at 4",
                        "histogram activation-summary/act-histogram of 2 max 4 at 4"));
  EXPECT_EQ(trainer.monitors().get_latest("x-mean"), 4);
  EXPECT_EQ(trainer.monitors().get_history("x-rms"),
            (std::vector<std::pair<int64_t, double>>{{2, 2}, {4, 4}}));
  EXPECT_EQ(trainer.monitors().get_latest("activation-summary/act-sparsity"), 0.5);
}

TEST(SummaryTest, GradientsAreReportedWithTheStepThatMadeThem) {
  std::vector<std::string> seen;
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"x", {-1}}}, FeedInput(count_to(4)),
      [](const at::Tensor& x) { return (x * get_variable("v", {})).mean(); },
      apply_grad_processors(SGD({.lr = 0}), {SummaryGradient()}));
  trainer.train({
      .callbacks = {MergeAllSummaries()},
      .monitors = OwnedList<MonitorBase>(Recorder(&seen)),
      .steps_per_epoch = 2,
      .max_epoch = 2,
  });
  EXPECT_THAT(seen, testing::ElementsAre("histogram v-grad-histogram of 1 max 2 at 2",
                                         "histogram v-grad-histogram of 1 max 4 at 4"));
  EXPECT_TRUE(trainer.monitors().contains("v-grad/rms"));
}

TEST(SummaryTest, ImagesAndTextsReachMonitors) {
  SimpleTrainer trainer;
  const auto seen = recorded(trainer, [](const at::Tensor& x) {
    add_text("note", "a model of squares");
    add_image_summary("one", x.mean().view({1, 1, 1, 1}).expand({1, 3, 4, 5}));
    add_image_summary("many", x.mean().view({1, 1, 1}).expand({9, 2, 3}), 2);
    return squares(x);
  });
  EXPECT_THAT(seen, testing::ElementsAre("text note 'a model of squares' at 0",
                                         "image one 4x5x3 at 2", "image many/0 2x3x1 at 2",
                                         "image many/1 2x3x1 at 2", "image one 4x5x3 at 4",
                                         "image many/0 2x3x1 at 4", "image many/1 2x3x1 at 4"));
}

TEST(SummaryTest, ParametersAreChosenByTheirWholeNames) {
  SimpleTrainer trainer;
  const auto seen = recorded(trainer, [](const at::Tensor& x) {
    add_param_summary({{"w"}, {"other", {SummaryType::kMean}}});
    return squares(x) + 0 * get_variable("ww", {2}).sum();
  });
  EXPECT_THAT(seen, testing::ElementsAre("histogram param-summary/w-histogram of 1 max 0 at 2",
                                         "histogram param-summary/w-histogram of 1 max 0 at 4"));
  EXPECT_EQ(trainer.monitors().get_latest("param-summary/w-rms"), 0);
}

TEST(SummaryTest, WrongTensorsAreErrors) {
  Graph graph;
  TowerContext tower(graph);
  EXPECT_THAT(
      [] {
        add_image_summary("x", at::ones({2, 5, 4, 4}));
      },
      ThrowsMessage<Error>(HasSubstr("'x' has the shape [2, 5, 4, 4]")));
  EXPECT_THAT([] { add_tensor_summary("x", at::ones({2}), {SummaryType::kScalar}); },
              ThrowsMessage<Error>(HasSubstr("'x' must be a scalar")));
  EXPECT_THROW(add_param_summary({{"("}}), Error);
  add_tensor_summary("y", at::ones({2}), {SummaryType::kMean});
  EXPECT_THAT([] { add_tensor_summary("y", at::ones({2}), {SummaryType::kMean}); },
              ThrowsMessage<Error>(HasSubstr("there is already a summary 'y-mean'")));
}

TEST(SummaryTest, AnActivationOfOneDimensionIsLeftOutWithAWarning) {
  Graph graph;
  TowerContext tower(graph);
  const std::string log = stdout_of([] { add_activation_summary("bias", at::ones({2})); });
  EXPECT_THAT(log, HasSubstr("WRN [add_activation_summary] 'bias' has one dimension and is left"));
  EXPECT_EQ(stdout_of([] { add_activation_summary("bias", at::ones({3})); }), "")
      << "told once, whatever the size of the batch";
  EXPECT_TRUE(detail::summaries_of(graph).tensors.empty());
  EXPECT_THAT([] { add_activation_summary("x", at::Tensor()); },
              ThrowsMessage<Error>(HasSubstr("'x' is an undefined tensor")));
}

// As of a discriminator that looks at pictures and at what a generator made of noise.
TEST(SummaryTest, AScopeThatIsUsedAgainReportsWhatItsFirstUseDid) {
  Graph graph;
  TowerContext tower(graph);
  const auto discriminate = [](double value) {
    const VariableScope scope("discrim", Reuse::kAuto);
    add_moving_summary("mean", at::full({}, value, at::kFloat));
    add_activation_summary("conv", at::full({1, 1}, value), {SummaryType::kMean});
  };
  discriminate(3);
  const std::string log = stdout_of([&] { discriminate(4); });
  EXPECT_THAT(log, HasSubstr("WRN [add_moving_summary] the scope 'discrim' is used again: the "
                             "summary 'mean' is that of its first use."));
  EXPECT_THAT(log, HasSubstr("the summary 'activation-summary/conv-mean' is that"));
  EXPECT_EQ(graph.variables().at("EMA/mean").tensor.item<float>(), 3);
  const auto& fetch = detail::summaries_of(graph).tensors.at(0).fetch;
  EXPECT_EQ(tower.tensor(fetch).item<float>(), 3);
}

TEST(SummaryTest, AveragesAreNotSaved) {
  SimpleTrainer trainer;
  trainer.setup_graph({{"x", {-1}}}, FeedInput(count_to(1)), squares, SGD({.lr = 0}));
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
  // Names of summaries are those of the whole graph.
  add_image_summary("image", at::zeros({1, 3, 2, 2}));
  EXPECT_THAT(
      [] {
        const VariableScope other("other");
        add_image_summary("image", at::zeros({1, 3, 2, 2}));
      },
      ThrowsMessage<Error>(HasSubstr("there is already a summary 'image' in this tower")));
}

}  // namespace
}  // namespace tensorpack
