// SPDX-License-Identifier: Apache-2.0
// Batch norm's kernels as the host's compiler understands them.
#include "tensorpack/cuda/kernels/batch_norm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "tensorpack/cuda/kernels/batch_norm_pool.h"
#include "tests/cuda/host_device.h"
#include "tests/cuda/kernel_cases.h"

namespace tensorpack::cuda {
namespace {

TEST(BatchNormKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const BatchNormCase& of : batch_norm_cases()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_batch_norm_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(BatchNormKernelTest, TwoThatAreAddedGiveWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  std::vector<BatchNormCase> cases = batch_norm_cases();
  cases.push_back({{3, 12, 3, 3}, at::kBFloat16});  // no whole bytes of bits
  cases.push_back({{7, 6, 1, 3}, at::kHalf});
  for (const BatchNormCase& of : cases) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_added_batch_norms_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(BatchNormKernelTest, PoolingGivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const MaxPoolCase& of : max_pool_cases()) {
    if (of.sizes[2] == 1) continue;  // one number has no variance
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_batch_norm_pool_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(BatchNormKernelTest, PoolingKeepsNotANumber) {
  const HostLauncher launcher;
  const at::Tensor counters = make_counters(at::kCPU);
  const at::Tensor x = at::randn({1, 4, 6, 6}).contiguous(at::MemoryFormat::ChannelsLast);
  x[0][1][2][3] = std::numeric_limits<float>::quiet_NaN();
  x[0][2][0][0] = std::numeric_limits<float>::infinity();
  const PoolWindow window{{3, 3}, {2, 2}, {1, 1}};
  const BatchNormPoolResults found = batch_norm_pool({.input = x}, window, counters, launcher);
  EXPECT_TRUE(found.y.select(1, 0).isfinite().all().item<bool>());
  EXPECT_TRUE(found.y.select(1, 1).isnan().all().item<bool>());
  EXPECT_TRUE(found.y.select(1, 2).isnan().any().item<bool>());
  const auto [dx, dw, db] = batch_norm_pool_backward({.grad = at::ones_like(found.y),
                                                      .input = x,
                                                      .taken = found.taken,
                                                      .places = found.places,
                                                      .statistics = found.statistics},
                                                     window, counters, launcher);
  EXPECT_TRUE(dx.select(1, 1).isnan().all().item<bool>());
  EXPECT_TRUE(dx.select(1, 3).isfinite().all().item<bool>());
}

TEST(BatchNormKernelTest, NotANumberAndInfinityOfBothStay) {
  const HostLauncher launcher;
  const at::Tensor counters = make_counters(at::kCPU);
  const at::Tensor x = at::randn({6, 4}), residual = at::randn({6, 4});
  x[2][1] = std::numeric_limits<float>::quiet_NaN();
  residual[3][2] = std::numeric_limits<float>::infinity();
  residual[4][3] = std::numeric_limits<float>::quiet_NaN();
  const BatchNormStatistics known = batch_norm_statistics({.input = residual}, counters, launcher);
  const auto [y, mean, invstd, bits] =
      batch_norm_act({.input = x, .residual = residual, .residual_statistics = known, .relu = true},
                     counters, launcher);
  EXPECT_TRUE(y.select(1, 0).isfinite().all().item<bool>());
  EXPECT_TRUE(y.select(1, 1).isnan().all().item<bool>());
  EXPECT_TRUE(y.select(1, 2).isnan().any().item<bool>());
  EXPECT_TRUE(y.select(1, 3).isnan().all().item<bool>());
}

TEST(BatchNormKernelTest, NotANumberAndInfinityStay) {
  const HostLauncher launcher;
  const at::Tensor counters = make_counters(at::kCPU);
  const at::Tensor x = at::randn({6, 4});
  x[2][1] = std::numeric_limits<float>::quiet_NaN();
  x[3][2] = std::numeric_limits<float>::infinity();
  const auto [y, mean, invstd, bits] =
      batch_norm_act({.input = x, .relu = true}, counters, launcher);
  EXPECT_TRUE(y.select(1, 1).isnan().all().item<bool>());
  EXPECT_TRUE(y.select(1, 2).isnan().any().item<bool>());
  EXPECT_TRUE(y.select(1, 0).isfinite().all().item<bool>());
  const at::Tensor grad = at::ones({6, 4});
  const auto [dx, dw, db, masked] = batch_norm_act_backward(
      {.grad = grad, .input = x, .mean = mean, .invstd = invstd, .mask = ReluMask::kOfInput},
      counters, launcher);
  EXPECT_TRUE(dx.select(1, 1).isnan().all().item<bool>());
  EXPECT_TRUE(dx.select(1, 3).isfinite().all().item<bool>());
}

TEST(BatchNormKernelTest, BitsTellWhatReluLetPass) {
  const HostLauncher launcher;
  const at::Tensor counters = make_counters(at::kCPU);
  for (const auto type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    const at::Tensor x =
        at::randn({2, 16, 3, 3}).to(type).contiguous(at::MemoryFormat::ChannelsLast);
    x[0][3][1][1] = std::numeric_limits<float>::quiet_NaN();
    // Where loads cannot be whole, too.
    const at::Tensor memory = at::empty({x.numel() + 1}, type);
    const at::Tensor odd = memory.narrow(0, 1, x.numel()).as_strided(x.sizes(), x.strides(), 1);
    odd.copy_(x);
    for (const at::Tensor& residual : {x, odd}) {
      const BatchNormArguments a{.input = x, .residual = residual, .relu = true, .keep_bits = true};
      const auto [y, mean, invstd, bits] = batch_norm_act(a, counters, launcher);
      const int64_t channels_of_byte = 16 / static_cast<int64_t>(c10::elementSize(type));
      ASSERT_EQ(bits.numel() * channels_of_byte, x.numel());
      const at::Tensor passed = y.permute({0, 2, 3, 1}).reshape({-1}).le(0).logical_not();
      for (int64_t i = 0; i < x.numel(); ++i) {
        const int byte = bits[i / channels_of_byte].item<int>();
        ASSERT_EQ(byte >> i % channels_of_byte & 1, passed[i].item<bool>() ? 1 : 0) << i;
      }
    }
  }
}

TEST(BatchNormKernelTest, BitsComeInWholeBytes) {
  EXPECT_TRUE(has_relu_bits(at::kBFloat16, 64));
  EXPECT_FALSE(has_relu_bits(at::kBFloat16, 12));
  EXPECT_TRUE(has_relu_bits(at::kFloat, 12));
  EXPECT_EQ(relu_bits_size(at::kHalf, 160), 20);
}

TEST(BatchNormKernelTest, GradientsInAnotherLayoutAreUnderstood) {
  const HostLauncher launcher;
  const at::Tensor x = at::randn({2, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast);
  const auto [y, mean, invstd, bits] =
      batch_norm_act({.input = x}, make_counters(at::kCPU), launcher);
  const at::Tensor grad = at::randn({2, 8, 3, 3});
  const BatchNormBackwardArguments a{.grad = grad, .input = x, .mean = mean, .invstd = invstd};
  const auto results = batch_norm_act_backward(a, make_counters(at::kCPU), launcher);
  const auto expected = batch_norm_act_backward_unfused(a);
  EXPECT_TRUE(at::allclose(std::get<0>(results), std::get<0>(expected), 1e-4, 1e-5));
}

TEST(ColumnPlanTest, ATensorIsAMatrixInChannelsLastAlone) {
  const at::Tensor x = at::empty({2, 3, 4, 5});
  EXPECT_FALSE(is_column_matrix(x.sizes(), x.strides()));
  const at::Tensor last = x.contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(is_column_matrix(last.sizes(), last.strides()));
  EXPECT_TRUE(is_column_matrix({4, 3}, {3, 1}));
  EXPECT_FALSE(is_column_matrix({4, 3}, {1, 4}));
  EXPECT_FALSE(is_column_matrix({0, 3}, {3, 1}));
  EXPECT_FALSE(is_column_matrix({2, 3, 4}, {12, 4, 1}));
}

TEST(ColumnPlanTest, ThreadsTakeAsManyColumnsAsMemoryAllows) {
  const auto width = [](const at::Tensor& tensor) { return plan_columns({tensor}).width; };
  EXPECT_EQ(width(at::empty({4, 64}, at::kBFloat16)), 8);
  EXPECT_EQ(width(at::empty({4, 64})), 4);
  EXPECT_EQ(width(at::empty({4, 12}, at::kBFloat16)), 4);
  EXPECT_EQ(width(at::empty({4, 7})), 1);
  // One element off the boundary of 16 bytes.
  EXPECT_EQ(width(at::empty({257}).narrow(0, 1, 256).view({4, 64})), 1);
}

TEST(ColumnPlanTest, BlocksCoverAllColumnsAndNoMoreRowsThanThereAre) {
  const ColumnPlan plan{.type = at::kFloat, .rows = 10, .columns = 300, .width = 4};
  const LaunchShape shape = plan.shape(132, 2);
  EXPECT_EQ(shape.block[0] * shape.block[1], static_cast<unsigned>(ColumnPlan::kThreads));
  EXPECT_GE(shape.grid[0] * shape.block[0] * 4, 300U);
  EXPECT_EQ(shape.grid[1], 1U);
}

}  // namespace
}  // namespace tensorpack::cuda
