// SPDX-License-Identifier: Apache-2.0
// Dynamic loss scaling, as a recorded program and eagerly.
#include "tensorpack/optim/loss_scale.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <barrier>
#include <thread>

#include "tensorpack/graph/graph.h"
#include "tensorpack/optim/adam.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/optim/wrappers.h"
#include "tensorpack/session/executor.h"
#include "tensorpack/tower/tower_context.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using at::Tensor;

// One weight, whose gradient is the mean of the input, rounded to `precision` on its way.
Op define_weight_step(Graph& graph, Optimizer& optimizer, c10::ScalarType precision = at::kFloat) {
  return graph.define({
      .name = "step",
      .inputs = {{"x", {-1}}},
      .body = [&graph, &optimizer, precision](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const Tensor w = get_variable("w", {}, init::ones());
        minimize(optimizer, w.to(precision).to(at::kFloat) * in[0].mean(),
                 graph.variables().trainable());
        return {};
      },
  });
}

class LossScaleTest : public testing::TestWithParam<ExecutorKind> {
 protected:
  void define(Optimizer& optimizer, c10::ScalarType precision = at::kFloat) {
    step_ = define_weight_step(graph_, optimizer, precision);
    executor_ = make_executor(GetParam(), graph_, {});
  }
  void run(double gradient) { executor_->run(step_, {at::full({2}, gradient, at::kFloat)}, {}); }
  double value(const char* name) { return graph_.variables().at(name).tensor.item<double>(); }

  Graph graph_;
  Op step_;
  std::unique_ptr<Executor> executor_;
};

INSTANTIATE_TEST_SUITE_P(Executors, LossScaleTest,
                         testing::Values(ExecutorKind::kReplay, ExecutorKind::kEager));

TEST_P(LossScaleTest, AStepThatOverflowsChangesTheScaleAlone) {
  LossScaleOptimizer optimizer(Momentum(0.5), {.first = 1024, .growth_interval = 2});
  define(optimizer);
  run(0.5);
  EXPECT_EQ(value("w"), 0.75);
  EXPECT_EQ(value("loss_scale"), 1024);
  EXPECT_EQ(value("loss_scale/good_steps"), 1);
  run(1e38);  // finite, but not times 1024
  EXPECT_EQ(value("w"), 0.75);
  EXPECT_EQ(value("w/Momentum"), 0.5);
  EXPECT_EQ(value("loss_scale"), 512);
  EXPECT_EQ(value("loss_scale/good_steps"), 0);
}

TEST_P(LossScaleTest, TheScaleGrowsAfterEnoughGoodStepsInARow) {
  LossScaleOptimizer optimizer(SGD(), {.first = 4, .growth = 3, .growth_interval = 2});
  define(optimizer);
  std::vector<double> scales;
  for (const double gradient : {1., 1., 1., 1e38, 1., 1.}) {
    run(gradient);
    scales.push_back(value("loss_scale"));
  }
  EXPECT_THAT(scales, testing::ElementsAre(4, 12, 12, 6, 6, 18));
}

TEST_P(LossScaleTest, GradientsTooSmallForFloat16Survive) {
  LossScaleOptimizer optimizer(SGD({.lr = 1e6}));
  define(optimizer, at::kHalf);
  run(1e-8);
  EXPECT_NEAR(value("w"), 0.99, 1e-5) << "unscaled, the gradient would be 0 in float16";
}

TEST_P(LossScaleTest, TheScaleFallsUntilFloat16HoldsTheGradients) {
  LossScaleOptimizer optimizer(Adam({.lr = 0.5}), {.first = 1 << 20});
  define(optimizer, at::kHalf);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(value("loss_scale"), (1 << 20) >> i);
    run(1);  // above 65504 when scaled
    EXPECT_EQ(value("w"), 1);
    EXPECT_EQ(value("w/Adam_m"), 0);
    EXPECT_EQ(value("Adam/step"), 0);
  }
  EXPECT_EQ(value("loss_scale"), 32768);
  run(1);
  EXPECT_NEAR(value("w"), 0.5, 1e-5);
  EXPECT_EQ(value("Adam/step"), 1);
  EXPECT_EQ(value("loss_scale"), 32768);
}

TEST_P(LossScaleTest, ANaNCountsAsAnOverflow) {
  LossScaleOptimizer optimizer(SGD({.lr = 0.1}));
  define(optimizer);
  run(std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(value("w"), 1);
  EXPECT_EQ(value("loss_scale"), 32768);
}

TEST(LossScaleErrorsTest, ItMustBeOutermost) {
  Graph graph;
  AccumGradOptimizer optimizer(LossScaleOptimizer(SGD()), 2);
  EXPECT_ERROR(define_weight_step(graph, optimizer), "put no other optimizer around this one");
}

// As towers do that are run eagerly: both have scaled before one of them updates.
TEST(LossScaleThreadsTest, EveryThreadScalesForItself) {
  LossScaleOptimizer optimizer(SGD({.lr = 1}), {.first = 4});
  std::barrier both(2);
  const auto train = [&](Graph& graph) {
    TowerContext tower(graph);
    const Tensor w = get_variable("w", {}, init::ones());
    const Tensor cost = optimizer.scale_cost(w * 2);
    both.arrive_and_wait();
    Variable& variable = graph.variables().at("w");
    const at::NoGradGuard no_grad;
    EXPECT_NO_THROW(optimizer.apply_gradients({{&variable, at::full({}, 8.0)}}));
    EXPECT_EQ(variable.tensor.item<double>(), 1 - 2);
  };
  Graph graphs[2];
  std::thread other([&] { train(graphs[1]); });
  train(graphs[0]);
  other.join();
}

TEST(LossScaleErrorsTest, ImpossibleOptionsAreErrors) {
  EXPECT_ERROR(LossScaleOptimizer(SGD(), {.first = 0}), "first 0 must be above 0");
  EXPECT_ERROR(LossScaleOptimizer(SGD(), {.backoff = 1}), "backoff 1 between 0 and 1");
}

}  // namespace
}  // namespace tensorpack::test
