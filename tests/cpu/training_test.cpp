// SPDX-License-Identifier: Apache-2.0
// A network whose step has all kernels of the CPU.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <set>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/session/step_again.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/processor.h"

namespace tensorpack {
namespace {

using testing::Contains;
using testing::Not;

class CpuTrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
    op_ = graph_.define({
        .name = "train",
        .inputs = {{"image", {16, 1, 28, 28}}, {"label", {16}, at::kLong}},
        .body = [this](const std::vector<at::Tensor>& in) -> NamedTensors {
          const TowerContext tower(graph_);
          const at::Tensor cost = at::cross_entropy_loss(logits(in[0]), in[1]);
          minimize(optimizer_, cost, graph_.variables().trainable());
          return {{"cost", cost}};
        },
    });
    graph_.finalize();
    at::manual_seed(5);
    for (int i = 0; i < kBatches; ++i) {
      batches_.push_back(
          {at::randn({16, 1, 28, 28}), at::randint(0, 10, {16}, at::TensorOptions(at::kLong))});
    }
  }

  // From the same start every time.
  std::vector<double> train(const SessionOptions& options) {
    std::vector<double> costs;
    for (const Variable& variable : graph_.variables().all()) {
      auto [start, is_new] = start_.try_emplace(variable.name, variable.tensor.detach().clone());
      variable.tensor.detach().copy_(start->second);
    }
    Session session(graph_, options);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<at::Tensor>& batch = batches_[step % kBatches];
      costs.push_back(
          session.run(op_, {"cost"}, {{"image", batch[0]}, {"label", batch[1]}})[0].item<double>());
    }
    return costs;
  }

  std::set<std::string> operators(const SessionOptions& options) {
    Session session(graph_, options);
    std::set<std::string> names;
    for (const OperatorTime& time : time_operators(session, op_, batches_[0], 1)) {
      names.insert(time.origin.op);
    }
    return names;
  }

 private:
  static at::Tensor logits(at::Tensor x) {
    const auto weight = [](const std::string& name, at::IntArrayRef shape) {
      return get_variable(name, shape, {.init = init::he_normal(), .channels_last = true});
    };
    x = at::conv2d(x, weight("conv0/W", {32, 1, 5, 5}), get_variable("conv0/b", {32}));
    x = at::max_pool2d(at::relu(x), 2).contiguous(at::MemoryFormat::ChannelsLast);
    x = at::relu(at::conv2d(x, weight("conv1/W", {32, 32, 3, 3}), {}, 1, 1));
    return at::linear(x.mean({2, 3}), weight("fc/W", {10, 32}));
  }

 protected:
  static constexpr int kSteps = 12, kBatches = 3;
  SGD optimizer_ = Momentum(0.05);
  Graph graph_{{.seed = 2}};
  Op op_;
  std::vector<std::vector<at::Tensor>> batches_;
  std::map<std::string, at::Tensor> start_;
};

TEST_F(CpuTrainingTest, KernelsOfOursTrainAlike) {
  const std::vector<double> fused = train({});
  const std::vector<double> plain = train({.fusion = Fusion::kNone});
  for (int step = 0; step < kSteps; ++step) EXPECT_NEAR(fused[step], plain[step], 1e-3) << step;
  EXPECT_LT(fused.back(), fused.front());
  EXPECT_EQ(train({}), fused);
}

TEST_F(CpuTrainingTest, WithoutThemAProgramGivesTheBitsOfEager) {
  const std::vector<double> eager = train({.executor = ExecutorKind::kEager});
  EXPECT_EQ(train({.fusion = Fusion::kNone}), eager);
  // Pooling rounds nothing.
  EXPECT_EQ(train({.fusion = Fusion::kExact}), eager);
}

TEST_F(CpuTrainingTest, AProfileNamesThem) {
  const std::set<std::string> names = operators({});
  for (const char* name :
       {"tensorpack::pool_squares", "tensorpack::pool_squares_backward", "tensorpack::winograd",
        "tensorpack::winograd_backward", "tensorpack::weight_gradient"}) {
    EXPECT_THAT(names, Contains(name));
  }
  EXPECT_THAT(names, Not(Contains("aten::convolution_backward")));
  const SessionOptions eager{.executor = ExecutorKind::kEager};
  EXPECT_THAT(operators(eager), Not(Contains("tensorpack::winograd")));
  EXPECT_THAT(
      operators({.debug_passes = [](PassSwitches& switches) { switches.max_pool = false; }}),
      Not(Contains("tensorpack::pool_squares")));
}

}  // namespace
}  // namespace tensorpack
