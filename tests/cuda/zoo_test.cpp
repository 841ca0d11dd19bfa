// SPDX-License-Identifier: Apache-2.0
// Every model and optimizer on the GPU.
#include "tests/support/zoo.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/cuda.h>

#include <cmath>
#include <set>
#include <string>

namespace tensorpack::test {
namespace {

constexpr int kZooSteps = 10;

class CudaZooTest : public testing::TestWithParam<ZooCase> {
 protected:
  void SetUp() override {
    if (!torch::cuda::is_available()) GTEST_SKIP() << "there is no GPU";
  }
  static ZooOutcome train_with(SessionOptions options) {
    return train(GetParam(), kZooSteps, options, c10::kCUDA);
  }
};

void expect_equal(const ZooOutcome& expected, const ZooOutcome& value) {
  for (int step = 0; step < kZooSteps; ++step) {
    for (size_t i = 0; i < expected.losses[step].size(); ++i) {
      ASSERT_TRUE(at::equal(expected.losses[step][i], value.losses[step][i]))
          << "loss " << i << " of step " << step << ": " << expected.losses[step][i].item<double>()
          << " and " << value.losses[step][i].item<double>();
    }
  }
  for (const auto& [name, tensor] : expected.variables) {
    EXPECT_TRUE(at::equal(tensor, value.variables.at(name))) << name;
  }
}

TEST_P(CudaZooTest, ReplayAndCudaGraphsEqualEagerBitwiseWhenDeterministic) {
  const auto outcome_of = [](ExecutorKind executor, Fusion fusion = Fusion::kNone) {
    return train_with({.executor = executor, .deterministic = true, .fusion = fusion});
  };
  const ZooOutcome eager = outcome_of(ExecutorKind::kEager);
  expect_equal(eager, outcome_of(ExecutorKind::kReplay));
  expect_equal(eager, outcome_of(ExecutorKind::kCudaGraph));
  expect_equal(eager, outcome_of(ExecutorKind::kCudaGraph, Fusion::kExact));
  EXPECT_FALSE(at::equal(eager.losses.front()[0], eager.losses.back()[0]));
}

// The fastest kernels add up in any order; a few steps stay within this of each other.
TEST_P(CudaZooTest, CudaGraphsAreNearEagerWithTheFastestKernels) {
  const ZooOutcome eager = train_with({.executor = ExecutorKind::kEager});
  const ZooOutcome graph = train_with({});
  for (int step = 0; step < 4; ++step) {
    for (size_t i = 0; i < eager.losses[step].size(); ++i) {
      const auto expected = eager.losses[step][i].item<double>();
      EXPECT_NEAR(graph.losses[step][i].item<double>(), expected, 1e-3 * std::abs(expected) + 1e-4)
          << "loss " << i << " of step " << step;
    }
  }
}

TEST_P(CudaZooTest, TheFirstLossIsThatOfTheCpu) {
  const std::set<std::string> random = {"LeNetWithNormAndDropout", "Vgg", "Transformer",
                                        "NegativeSampling"};
  if (random.contains(GetParam().model->name)) GTEST_SKIP() << "the generators differ";
  const ZooOutcome cpu = train(GetParam(), 1, {});
  const ZooOutcome cuda = train_with({});
  for (size_t i = 0; i < cpu.losses[0].size(); ++i) {
    EXPECT_NEAR(cuda.losses[0][i].item<double>(), cpu.losses[0][i].item<double>(), 1e-3);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaZooTest, testing::ValuesIn(all_zoo_cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tensorpack::test
