// SPDX-License-Identifier: Apache-2.0
// Gradient processors and optimizers around optimizers, against calculation by hand.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "tensorpack/graph/graph.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/optim/moving_average.h"
#include "tensorpack/optim/rmsprop.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/optim/wrappers.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/tower/summary.h"
#include "tensorpack/tower/tower_context.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using at::Tensor;
using testing::ElementsAre;
using testing::HasSubstr;

Tensor vector_of(std::initializer_list<double> values) { return at::tensor(values, at::kFloat); }

// A training step of a small layer.
Op define_step(Graph& graph, Optimizer& optimizer) {
  return graph.define({
      .name = "step",
      .inputs = {{"x", {-1, 3}}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const Tensor y = FullyConnected("fc", in[0], {.units = 2, .activation = torch::tanh});
        minimize(optimizer, y.square().sum(1).mean(), graph.variables().trainable());
        return {};
      },
  });
}

// Two variables, "a" of 2 numbers and "fc/W" of 1, with given gradients.
class GradientsTest : public testing::Test {
 protected:
  GradientsTest() {
    TowerContext tower(graph_);
    get_variable("a", {2}, init::ones());
    get_variable("fc/W", {1}, init::ones());
  }
  Gradients gradients(const Tensor& of_a, const Tensor& of_fc) {
    return {{&graph_.variables().at("a"), of_a}, {&graph_.variables().at("fc/W"), of_fc}};
  }
  Tensor value(const std::string& name) { return graph_.variables().at(name).tensor.detach(); }
  void apply(Optimizer& optimizer, const Tensor& of_a, const Tensor& of_fc) {
    TowerContext tower(graph_);
    at::NoGradGuard no_grad;
    optimizer.apply_gradients(gradients(of_a, of_fc));
  }

  Graph graph_;
};

TEST_F(GradientsTest, GlobalNormClipScalesAllByOneFactor) {
  const Gradients clipped =
      GlobalNormClip(6.5).process(gradients(vector_of({3, 4}), vector_of({12})));
  EXPECT_TRUE(at::allclose(clipped[0].value, vector_of({1.5, 2})));
  EXPECT_TRUE(at::allclose(clipped[1].value, vector_of({6})));
  const Gradients kept = GlobalNormClip(13).process(gradients(vector_of({3, 4}), vector_of({12})));
  EXPECT_TRUE(at::equal(kept[1].value, vector_of({12})));
  const Gradients small =
      GlobalNormClip(100).process(gradients(vector_of({3, 4}), vector_of({12})));
  EXPECT_TRUE(at::equal(small[0].value, vector_of({3, 4}))) << "a limit, not a norm to reach";
  EXPECT_TRUE(at::equal(small[1].value, vector_of({12})));
  EXPECT_ERROR(GlobalNormClip(0), "the norm is 0");
}

TEST_F(GradientsTest, MapGradientMatchesWholeNamesAndMayDrop) {
  MapGradient twice([](const Tensor& g) { return g * 2; }, "fc");
  const std::string log = stdout_of([&] {
    EXPECT_TRUE(at::equal(twice.process(gradients(vector_of({1, 1}), vector_of({3})))[1].value,
                          vector_of({3})));
  });
  EXPECT_THAT(log, HasSubstr("MapGradient('fc') matches the whole name of no variable"));
  MapGradient drop([](const Tensor& g, const Variable& variable) -> std::optional<Tensor> {
    if (variable.name == "a") return std::nullopt;
    return g + 1;
  });
  const Gradients left = drop.process(gradients(vector_of({1, 1}), vector_of({3})));
  ASSERT_EQ(left.size(), 1U);
  EXPECT_TRUE(at::equal(left[0].value, vector_of({4})));
}

TEST_F(GradientsTest, TheFirstRuleOfScaleGradientWins) {
  ScaleGradient scale({{"fc/.*", 0.5}, {"fc/W", 7}, {"a", 0}});
  Gradients scaled;
  const std::string log = stdout_of([&] {
    scaled = scale.process(gradients(vector_of({1, 1}), vector_of({3})));
  });
  ASSERT_EQ(scaled.size(), 1U);
  EXPECT_TRUE(at::equal(scaled[0].value, vector_of({1.5})));
  EXPECT_THAT(log, HasSubstr("The gradient of 'fc/W' is multiplied by 0.5."));
}

TEST_F(GradientsTest, ARuleThatMatchesNoVariableIsToldOf) {
  ScaleGradient scale({{"f", 0.25}, {"fc/.*", 1}});
  Gradients kept;
  const std::string log = stdout_of([&] {
    kept = scale.process(gradients(vector_of({1, 1}), vector_of({3})));
  });
  EXPECT_TRUE(at::equal(kept[1].value, vector_of({3}))) << "patterns are for whole names";
  EXPECT_THAT(log, HasSubstr("ScaleGradient('f') matches the whole name of no variable"));
  EXPECT_THAT(log, testing::Not(HasSubstr("'fc/.*'")));
  const auto log_of = [&](GradientProcessor&& processor) {
    return stdout_of([&] {
      TowerContext tower(graph_);
      at::NoGradGuard no_grad;
      processor.process(gradients(vector_of({1, 1}), vector_of({3})));
    });
  };
  EXPECT_THAT(log_of(PrintGradient("none")), HasSubstr("PrintGradient('none') matches"));
  EXPECT_THAT(log_of(SummaryGradient("none")), HasSubstr("SummaryGradient('none') matches"));
}

TEST_F(GradientsTest, ARuleForAnotherSetOfVariablesIsNone) {
  TowerContext tower(graph_);
  const std::string log = stdout_of([&] {
    ScaleGradient({{"fc/W", 0.75}}).process({{&graph_.variables().at("a"), vector_of({1, 1})}});
  });
  EXPECT_EQ(log, "") << "the optimizer may update that one, too";
}

TEST_F(GradientsTest, ProcessorsRunInOrderBeforeTheUpdate) {
  auto optimizer = apply_grad_processors(
      SGD({.lr = 1}), {GlobalNormClip(5), MapGradient([](const Tensor& g) { return g + 1; }, "a")});
  apply(optimizer, vector_of({6, 8}), vector_of({0}));
  EXPECT_TRUE(at::allclose(value("a"), vector_of({1 - 4, 1 - 5})));
  EXPECT_TRUE(at::allclose(value("fc/W"), vector_of({1})));
}

TEST(PrintGradientTest, ARecordedProgramLogsInEveryRun) {
  Graph graph;
  auto optimizer = apply_grad_processors(SGD({.lr = 0}), {PrintGradient(".*/W")});
  const Op step = define_step(graph, optimizer);
  ProgramExecutor executor(graph, {});
  executor.run(step, {at::ones({2, 3})}, {});
  const std::string log = stdout_of([&] { executor.run(step, {at::ones({2, 3})}, {}); });
  EXPECT_THAT(log, HasSubstr("Gradient of 'fc/W': shape [2, 3], mean "));
  EXPECT_THAT(log, testing::Not(HasSubstr("fc/b")));
}

TEST_F(GradientsTest, SummaryGradientReportsTheRms) {
  auto optimizer = apply_grad_processors(SGD(), {SummaryGradient("a")});
  apply(optimizer, vector_of({3, 4}), vector_of({1}));
  const auto summaries = moving_summaries(graph_);
  ASSERT_EQ(summaries.size(), 1U);
  EXPECT_EQ(summaries[0].first, "a-grad/rms");
  EXPECT_NEAR(summaries[0].second, std::sqrt(12.5), 1e-6);
}

TEST(CheckGradientTest, ARecordedProgramStopsAtNaNBeforeTheUpdate) {
  Graph graph;
  auto optimizer = apply_grad_processors(SGD({.lr = 0.1}), {CheckGradient()});
  const Op step = define_step(graph, optimizer);
  ProgramExecutor executor(graph, {});
  const Tensor x = at::ones({2, 3});
  executor.run(step, {x}, {});
  const Tensor before = graph.variables().at("fc/W").tensor.detach().clone();
  const Tensor bad = x * std::numeric_limits<float>::quiet_NaN();
  EXPECT_ERROR(executor.run(step, {bad}, {}), "the gradient of 'fc/W' has a NaN");
  EXPECT_EQ(executor.recordings(), 1U);
  EXPECT_TRUE(at::equal(graph.variables().at("fc/W").tensor, before));
  executor.run(step, {x}, {});
  EXPECT_FALSE(at::equal(graph.variables().at("fc/W").tensor, before));
}

template <typename Inner>
void expect_one_large_batch(Inner inner) {
  at::manual_seed(4);
  const Tensor data = at::randn({4 * 6, 3});
  Graph large_graph, small_graph;
  Inner plain = inner;
  const Op large = define_step(large_graph, plain);
  AccumGradOptimizer accumulating(Inner(inner), 3, {.average = true});
  const Op small = define_step(small_graph, accumulating);
  ProgramExecutor large_executor(large_graph, {}), small_executor(small_graph, {});
  for (int i = 0; i < 2; ++i) large_executor.run(large, {data.narrow(0, 12 * i, 12)}, {});
  for (int i = 0; i < 6; ++i) small_executor.run(small, {data.narrow(0, 4 * i, 4)}, {});
  EXPECT_EQ(small_executor.recordings(), 1U);
  for (const Variable& variable : large_graph.variables().all()) {
    EXPECT_TRUE(
        at::allclose(variable.tensor, small_graph.variables().at(variable.name).tensor, 1e-4, 1e-6))
        << variable.name;
  }
}

TEST(AccumGradTest, SeveralBatchesEqualOneLargeOne) {
  expect_one_large_batch(SGD({.lr = 0.1}));
  expect_one_large_batch(Momentum(0.1));
  expect_one_large_batch(Adam({.lr = 0.01, .weight_decay = 0.1}));
  expect_one_large_batch(RMSProp({.lr = 0.01, .momentum = 0.9}));
}

TEST_F(GradientsTest, AccumGradSumsAndAppliesEveryKthTime) {
  AccumGradOptimizer optimizer(Momentum(0.5), 2);
  apply(optimizer, vector_of({1, 2}), vector_of({3}));
  EXPECT_TRUE(at::equal(value("a"), vector_of({1, 1})));
  EXPECT_TRUE(at::equal(value("a/AccumGrad"), vector_of({1, 2})));
  EXPECT_TRUE(at::equal(value("a/Momentum"), vector_of({0, 0})));
  apply(optimizer, vector_of({1, 0}), vector_of({1}));
  EXPECT_TRUE(at::equal(value("a"), vector_of({1 - 1, 1 - 1})));
  EXPECT_TRUE(at::equal(value("fc/W"), vector_of({1 - 2})));
  EXPECT_TRUE(at::equal(value("a/AccumGrad"), vector_of({0, 0})));
  EXPECT_TRUE(at::equal(value("a/Momentum"), vector_of({2, 2})));
  EXPECT_EQ(graph_.variables().at("a/AccumGrad").role, VariableRole::kGlobal);
  EXPECT_ERROR(AccumGradOptimizer(SGD(), 0), "niter is 0");
}

TEST_F(GradientsTest, PostProcessingFollowsTheUpdate) {
  std::vector<std::string> names;
  PostProcessOptimizer optimizer(SGD({.lr = 1}), [&](Variable& variable) {
    names.push_back(variable.name);
    variable.tensor.mul_(10);
  });
  apply(optimizer, vector_of({1, 2}), vector_of({3}));
  EXPECT_THAT(names, ElementsAre("a", "fc/W"));
  EXPECT_TRUE(at::equal(value("a"), vector_of({0, -10})));
}

TEST_F(GradientsTest, AssignedValuesTakeThePlaceOfUpdatedOnes) {
  VariableAssignmentOptimizer optimizer(SGD({.lr = 1}),
                                        [](const Variable& variable) -> std::optional<Tensor> {
                                          if (variable.name == "a")
                                            return variable.tensor.clamp(-0.5, 0.5);
                                          return std::nullopt;
                                        });
  apply(optimizer, vector_of({1, 5}), vector_of({3}));
  EXPECT_TRUE(at::equal(value("a"), vector_of({0, -0.5})));
  EXPECT_TRUE(at::equal(value("fc/W"), vector_of({-2})));
}

TEST_F(GradientsTest, MovingAveragesCountTheFirstStepsAlike) {
  MovingAverageOptimizer optimizer(SGD({.lr = 1}), {.decay = 0.5});
  apply(optimizer, vector_of({1, 1}), vector_of({0}));  // a: 0
  EXPECT_TRUE(at::equal(value("a/MovingAverage"), vector_of({0, 0})));
  apply(optimizer, vector_of({-4, 0}), vector_of({0}));  // a: 4, 0
  EXPECT_TRUE(at::allclose(value("a/MovingAverage"), vector_of({2, 0})));
  apply(optimizer, vector_of({-4, 0}), vector_of({0}));  // a: 8, 0
  EXPECT_TRUE(at::allclose(value("a/MovingAverage"), vector_of({5, 0})));
  EXPECT_EQ(graph_.variables().at("a/MovingAverage").role, VariableRole::kModel);
}

// Averages of w as it is after each update: w = 1 - 2 = -1 after two steps, -3 after four.
template <typename Wrapped>
void expect_average_per_update(Wrapped accumulating) {
  Graph graph;
  MovingAverageOptimizer optimizer(std::move(accumulating), {.decay = 0.5});
  for (int step = 1; step <= 5; ++step) {
    TowerContext tower(graph);
    const Tensor w = get_variable("w", {}, init::ones());
    minimize(optimizer, w);
    const double average = graph.variables().at("w/MovingAverage").tensor.item<double>();
    EXPECT_EQ(average, step < 2 ? 1 : step < 4 ? -1 : -2) << step;
    EXPECT_EQ(graph.variables().at("MovingAverage/step").tensor.item<double>(), step / 2) << step;
  }
}

TEST(MovingAverageTest, CountsUpdatesAroundAnAccumulatingOptimizer) {
  expect_average_per_update(AccumGradOptimizer(SGD({.lr = 1}), 2));
  expect_average_per_update(
      apply_grad_processors(AccumGradOptimizer(SGD({.lr = 1}), 2), {GlobalNormClip(9)}));
  expect_average_per_update(
      PostProcessOptimizer(AccumGradOptimizer(SGD({.lr = 1}), 2), [](Variable&) {}));
  // Inside, it is called when an update is due.
  Graph graph;
  AccumGradOptimizer optimizer(MovingAverageOptimizer(SGD({.lr = 1}), {.decay = 0.5}), 2);
  for (int step = 1; step <= 4; ++step) {
    TowerContext tower(graph);
    minimize(optimizer, get_variable("w", {}, init::ones()));
  }
  EXPECT_EQ(graph.variables().at("w/MovingAverage").tensor.item<double>(), -2);
}

TEST(MovingAverageTest, ARecordedProgramCountsUpdatesToo) {
  Graph graph;
  MovingAverageOptimizer optimizer(AccumGradOptimizer(SGD({.lr = 0.5}), 3), {.decay = 0.9});
  const Op step = define_step(graph, optimizer);
  ProgramExecutor executor(graph, {});
  const auto value = [&](const std::string& name) {
    return graph.variables().at(name).tensor.detach().clone();
  };
  const Tensor first = value("fc/W");
  EXPECT_TRUE(at::equal(value("fc/W/MovingAverage"), first));
  const Tensor x = at::randn({5, 3});
  for (int i = 0; i < 3; ++i) executor.run(step, {x}, {});
  const Tensor second = value("fc/W");
  EXPECT_FALSE(at::equal(second, first));
  EXPECT_TRUE(at::equal(value("fc/W/MovingAverage"), second));
  for (int i = 0; i < 3; ++i) executor.run(step, {x}, {});
  EXPECT_TRUE(at::allclose(value("fc/W/MovingAverage"), (second + value("fc/W")) / 2));
}

TEST_F(GradientsTest, PostProcessingFollowsTheUpdateOfAnAccumulatingOptimizer) {
  VariableAssignmentOptimizer optimizer(
      AccumGradOptimizer(SGD({.lr = 0}), 2),
      [](const Variable& variable) -> std::optional<Tensor> { return variable.tensor * 2; });
  for (double expected : {1, 2, 2, 4}) {
    apply(optimizer, vector_of({1, 1}), vector_of({1}));
    EXPECT_TRUE(at::equal(value("a"), vector_of({expected, expected})));
  }
}

// Building differentiates the logarithm of zeros.
TEST(MovingAverageTest, ATrialStepLeavesNothingInTheAverages) {
  Graph graph;
  MovingAverageOptimizer optimizer(SGD({.lr = 1}), {.decay = 0.5});
  const Op step = graph.define({
      .name = "step",
      .inputs = {{"x", {-1}}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        minimize(optimizer, (get_variable("w", {}, init::ones()) * in[0].log()).sum());
        return {};
      },
  });
  ProgramExecutor executor(graph, {});
  EXPECT_EQ(graph.variables().at("w/MovingAverage").tensor.item<double>(), 1);
  executor.run(step, {at::ones({2})}, {});
  EXPECT_EQ(graph.variables().at("w/MovingAverage").tensor.item<double>(), 1);
}

TEST(MovingAverageTest, PredictingWithAveragesThatNobodyKeepsIsAnError) {
  Graph graph;
  SGD optimizer;
  define_step(graph, optimizer);
  TowerContext tower(graph, {.is_training = false, .shares_variables = true});
  const auto averaged = use_moving_averages();
  EXPECT_ERROR(FullyConnected("fc", at::ones({1, 3}), {.units = 2}),
               "no variable has a moving average");
}

TEST(MovingAverageTest, AveragesCanPredict) {
  Graph graph;
  MovingAverageOptimizer optimizer(Momentum(0.5), {.decay = 0.9});
  const Op step = define_step(graph, optimizer);
  const Op predict = graph.define({
      .name = "predict",
      .inputs = {{"x", {-1, 3}}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph, {.is_training = false, .shares_variables = true});
        const auto averaged = use_moving_averages();
        return {{"y", FullyConnected("fc", in[0], {.units = 2})}};
      },
  });
  ProgramExecutor executor(graph, {});
  const Tensor x = at::randn({5, 3});
  for (int i = 0; i < 4; ++i) executor.run(step, {x}, {});
  auto value = [&](const std::string& name) { return graph.variables().at(name).tensor.detach(); };
  const Tensor y = executor.run(predict, {x}, {"y"})[0];
  EXPECT_TRUE(at::allclose(
      y, at::linear(x, value("fc/W/MovingAverage"), value("fc/b/MovingAverage")), 1e-4, 1e-6));
  EXPECT_FALSE(at::allclose(y, at::linear(x, value("fc/W"), value("fc/b"))));
}

}  // namespace
}  // namespace tensorpack::test
