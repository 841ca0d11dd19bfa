// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cpu/kernels/max_pool.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "tensorpack/cpu/passes/passes.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/utils/processor.h"
#include "tests/graph/tracing.h"

namespace tensorpack::cpu {
namespace {

using testing::Contains;
using testing::Not;

bool is_same(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && at::allclose(a, b, 0, 0, /*equal_nan=*/true);
}

// ---- kernels

class PoolSquaresTest : public testing::TestWithParam<std::vector<int64_t>> {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
    at::manual_seed(3);
  }
  // Against libtorch's operators, both ways.
  static void expect_same(const at::Tensor& x) {
    for (const bool relu : {false, true}) {
      const at::Tensor pooled = relu ? at::relu(x) : x;
      const auto [expected, indices] = at::max_pool2d_with_indices(pooled, 2);
      const at::Tensor grad = at::randn_like(expected);
      at::Tensor expected_grad =
          at::max_pool2d_with_indices_backward(grad, pooled, 2, 2, 0, 1, false, indices);
      if (relu) expected_grad = at::threshold_backward(expected_grad, pooled, 0);

      const auto [y, places] = pool_squares(x, relu);
      EXPECT_TRUE(is_same(y, expected)) << relu;
      EXPECT_TRUE(is_same(pool_squares_backward(grad, places, x.sizes()), expected_grad)) << relu;
      const at::Tensor grad_in_channels_last = grad.contiguous(at::MemoryFormat::ChannelsLast);
      EXPECT_TRUE(
          is_same(pool_squares_backward(grad_in_channels_last, places, x.sizes()), expected_grad));
    }
  }
};

TEST_P(PoolSquaresTest, EqualsLibtorch) { expect_same(at::randn(GetParam())); }

TEST_P(PoolSquaresTest, TakesTheFirstOfEqualMaxima) {
  expect_same(at::randint(-1, 2, GetParam(), at::TensorOptions(at::kFloat)));
}

TEST_P(PoolSquaresTest, KeepsNanAndInfinity) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  at::Tensor x = at::randn(GetParam());
  const at::Tensor kind = at::randint(0, 6, GetParam(), at::TensorOptions(at::kLong));
  x = x.masked_fill(kind == 0, kInfinity).masked_fill(kind == 1, -kInfinity);
  expect_same(x.masked_fill(kind == 2, std::numeric_limits<float>::quiet_NaN()));
  expect_same(at::full(GetParam(), -kInfinity));
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, PoolSquaresTest,
    testing::Values(std::vector<int64_t>{1, 1, 2, 2}, std::vector<int64_t>{1, 1, 3, 3},
                    std::vector<int64_t>{2, 3, 7, 9}, std::vector<int64_t>{1, 2, 16, 16},
                    std::vector<int64_t>{3, 1, 5, 35}, std::vector<int64_t>{2, 5, 24, 24},
                    std::vector<int64_t>{0, 3, 4, 4}));

// ---- the pass

class MaxPoolFusionTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
  }
  // Traces `function` of x and w, and what its square gives for w; fuses, and expects the same.
  void fuse(const std::function<at::Tensor(const at::Tensor&)>& function, int expected_operators,
            bool fetches_inner = false) {
    const Tensors inputs = {x_};
    Trace trace = trace_of(inputs, {w_}, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor y = function(in[0] * w_);
      NamedTensors outputs = {{"y", y},
                              {"grad", torch::autograd::grad({y.square().sum()}, {w_})[0]}};
      if (fetches_inner) outputs.emplace("inner", inner_);
      return outputs;
    });
    std::vector<std::string> fetches = {"y", "grad"};
    if (fetches_inner) fetches.emplace_back("inner");
    tensorpack::optimize(trace, fetches);
    Tensors before, after;
    for (const std::string& name : fetches) before.push_back(run(trace, inputs, name));
    EXPECT_EQ(fuse_max_pool(trace), expected_operators);
    eliminate_dead_code(trace, fetches);
    for (const std::string& name : fetches) after.push_back(run(trace, inputs, name));
    for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(is_same(before[i], after[i])) << i;
    operators_ = operators(trace);
  }

  at::Tensor x_ = at::randn({2, 3, 8, 10});
  at::Tensor w_ = at::randn({2, 3, 8, 10}).set_requires_grad(true);
  at::Tensor inner_;
  std::vector<std::string> operators_;
};

TEST_F(MaxPoolFusionTest, TakesInTheReluBothWays) {
  fuse([](const at::Tensor& x) { return at::max_pool2d(at::relu(x), 2); }, 2);
  EXPECT_THAT(operators_, Contains("tensorpack::pool_squares"));
  EXPECT_THAT(operators_, Contains("tensorpack::pool_squares_backward"));
  EXPECT_THAT(operators_, Not(Contains("aten::relu")));
  EXPECT_THAT(operators_, Not(Contains("aten::threshold_backward")));
}

TEST_F(MaxPoolFusionTest, PoolsWithoutAReluToo) {
  fuse([](const at::Tensor& x) { return at::max_pool2d(x.tanh(), 2, 2); }, 2);
  EXPECT_THAT(operators_, Not(Contains("aten::max_pool2d_with_indices")));
}

TEST_F(MaxPoolFusionTest, AReluThatIsReadElsewhereIsComputed) {
  fuse(
      [&](const at::Tensor& x) {
        inner_ = at::relu(x);
        return at::max_pool2d(inner_, 2);
      },
      2, /*fetches_inner=*/true);
  EXPECT_THAT(operators_, Contains("aten::relu"));
  EXPECT_THAT(operators_, Contains("tensorpack::pool_squares"));
}

TEST_F(MaxPoolFusionTest, AReluWithTwoGradientsIsComputed) {
  fuse(
      [](const at::Tensor& x) {
        const at::Tensor y = at::relu(x);
        return at::max_pool2d(y, 2) + y.mean();
      },
      2);
  EXPECT_THAT(operators_, Contains("aten::relu"));
}

// By an operator behind the relu's own.
TEST_F(MaxPoolFusionTest, AReluWhoseGradientIsReadElsewhereIsComputed) {
  at::Tensor gradient;
  fuse(
      [&](const at::Tensor& x) {
        const at::Tensor y = at::relu(x);
        y.register_hook([&](const at::Tensor& grad) { gradient = grad; });
        x.register_hook([&](const at::Tensor&) { inner_ = gradient.sum(); });
        return at::max_pool2d(y, 2);
      },
      2, /*fetches_inner=*/true);
  EXPECT_THAT(operators_, Contains("aten::relu"));
}

TEST_F(MaxPoolFusionTest, IndicesThatAreAskedForAreMade) {
  fuse(
      [&](const at::Tensor& x) {
        const auto [y, indices] = at::max_pool2d_with_indices(at::relu(x), 2);
        inner_ = indices;
        return y;
      },
      0, /*fetches_inner=*/true);
}

TEST_F(MaxPoolFusionTest, LeavesOtherWindowsAlone) {
  fuse([](const at::Tensor& x) { return at::max_pool2d(at::relu(x), 3, 2); }, 0);
  fuse([](const at::Tensor& x) { return at::max_pool2d(at::relu(x), 2, 1); }, 0);
  fuse([](const at::Tensor& x) { return at::max_pool2d(at::relu(x), 2, 2, 1); }, 0);
  fuse([](const at::Tensor& x) { return at::max_pool2d(at::relu(x), 2, 2, 0, 2); }, 0);
}

TEST_F(MaxPoolFusionTest, LeavesOtherTypesAndFormatsAlone) {
  const auto pool = [](const at::Tensor& x) { return at::max_pool2d(at::relu(x), 2); };
  fuse([&](const at::Tensor& x) { return pool(x.to(at::kDouble)); }, 0);
  fuse([&](const at::Tensor& x) { return pool(x.contiguous(at::MemoryFormat::ChannelsLast)); }, 0);
}

}  // namespace
}  // namespace tensorpack::cpu
