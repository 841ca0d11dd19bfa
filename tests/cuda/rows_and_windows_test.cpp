// SPDX-License-Identifier: Apache-2.0
// Cross entropy, layer norm, pooling and sums as the host's compiler understands their kernels.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <array>
#include <limits>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/concat_sum.h"
#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tensorpack/cuda/kernels/fold_image.h"
#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tests/cuda/host_device.h"
#include "tests/cuda/kernel_cases.h"

namespace tensorpack::cuda {
namespace {

TEST(CrossEntropyKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const CrossEntropyCase& of : cross_entropy_cases()) {
    SCOPED_TRACE(c10::str(of.rows, " x ", of.classes, " ", of.type));
    expect_cross_entropy_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(CrossEntropyKernelTest, RowsThatAreNoNumbersAndTargetsThatAreNoClassesShow) {
  const HostLauncher launcher;
  const at::Tensor logits = at::randn({3, 10});
  logits[1][4] = std::numeric_limits<float>::quiet_NaN();
  CrossEntropyArguments a{
      .logits = logits, .target = at::zeros({3}, at::kLong), .loss_grad = at::ones({})};
  const auto [loss, count, grad] = cross_entropy(a, launcher);
  EXPECT_TRUE(loss.isnan().item<bool>());
  EXPECT_TRUE(grad[1].isnan().all().item<bool>());
  EXPECT_TRUE(grad[0].isfinite().all().item<bool>());
  a.logits = at::randn({3, 10});
  a.target[2] = 10;
  EXPECT_TRUE(std::get<0>(cross_entropy(a, launcher)).isnan().item<bool>());
}

TEST(CrossEntropyKernelTest, InfinityIsHandledAsByTheUnfusedOperators) {
  const HostLauncher launcher;
  const at::Tensor logits = at::randn({2, 10});
  logits[0][3] = -std::numeric_limits<float>::infinity();
  const CrossEntropyArguments a{
      .logits = logits, .target = at::zeros({2}, at::kLong), .loss_grad = at::ones({})};
  const auto results = cross_entropy(a, launcher);
  const auto expected = cross_entropy_unfused(a);
  EXPECT_TRUE(at::allclose(std::get<0>(results), std::get<0>(expected)));
  EXPECT_TRUE(at::allclose(std::get<2>(results), std::get<2>(expected)));
}

TEST(BiasReluKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  expect_bias_relu_as_unfused({2, 24, 5, 7}, at::kBFloat16, at::kBFloat16, launcher, at::kCPU);
  expect_bias_relu_as_unfused({1, 3, 1, 1}, at::kFloat, at::kFloat, launcher, at::kCPU);
}

TEST(ColumnPlanTest, SumsOverManyRowsHaveNarrowBlocks) {
  using Extents = std::array<unsigned, 2>;
  const ColumnPlan plan{.type = at::kBFloat16, .rows = 800'000, .columns = 256, .width = 8};
  EXPECT_EQ(plan.shape(132, 2).block, (Extents{32, 16}));
  EXPECT_EQ(plan.shape_of_sums(132, 2).block, (Extents{8, 64})) << "a line of the memory";
  EXPECT_EQ(plan.shape_of_sums(132, 2).grid, (Extents{4, 66}));
  const ColumnPlan few{.type = at::kBFloat16, .rows = 100, .columns = 256, .width = 8};
  EXPECT_EQ(few.shape_of_sums(132, 2).block, (Extents{32, 16}));
}

TEST(ColumnSumKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  expect_column_sum_as_unfused({300, 24}, at::kBFloat16, at::kBFloat16, launcher, at::kCPU);
  expect_column_sum_as_unfused({1, 1}, at::kFloat, at::kFloat, launcher, at::kCPU);
  expect_column_sum_as_unfused({77, 131}, at::kHalf, at::kFloat, launcher, at::kCPU);
}

TEST(ConcatSumKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const ConcatSumCase& of : concat_sum_cases()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.rows), " ", at::IntArrayRef(of.columns), of.type));
    expect_concat_sum_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(ConcatSumKernelTest, TakesRowsThatAreAllAsFarApart) {
  const at::Tensor x = at::zeros({4, 6, 16});
  const auto stride_of = [](const at::Tensor& t) { return row_stride(t.sizes(), t.strides()); };
  EXPECT_EQ(stride_of(x), 16);
  EXPECT_EQ(stride_of(x.narrow(2, 3, 5)), 16);
  EXPECT_EQ(stride_of(x.narrow(0, 1, 2)), 16);
  EXPECT_EQ(stride_of(x.slice(1, 0, 6, 2)), 32);
  EXPECT_EQ(stride_of(x.slice(1, 0, 6, 5)), std::nullopt);
  EXPECT_EQ(stride_of(x.narrow(1, 0, 3)), std::nullopt);
  EXPECT_EQ(stride_of(x.narrow(1, 0, 3).narrow(0, 0, 1)), 16);
  EXPECT_EQ(stride_of(x.transpose(0, 1)), std::nullopt);
  EXPECT_EQ(stride_of(x.transpose(1, 2)), std::nullopt);
  EXPECT_EQ(stride_of(x.narrow(2, 0, 1)), 16);
  EXPECT_EQ(stride_of(at::zeros({8}).expand({4, 6, 8})), 0);
  EXPECT_EQ(stride_of(at::zeros({})), std::nullopt);
}

TEST(LayerNormKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const LayerNormCase& of : layer_norm_cases()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type, " ", of.layers));
    expect_layer_norm_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(LayerNormKernelTest, RowsThatAreNoNumbersShow) {
  const HostLauncher launcher;
  const at::Tensor x = at::randn({3, 20});
  x[1][19] = std::numeric_limits<float>::infinity();
  const auto results = layer_norm({.input = x, .size = {3, 20}}, launcher);
  EXPECT_TRUE(std::get<0>(results)[1].isnan().any().item<bool>());
  EXPECT_TRUE(std::get<0>(results)[2].isfinite().all().item<bool>());
}

// Of more rows than warps.
TEST(LayerNormKernelTest, WhatIsNoNumberShowsInTheSumOfItsColumnAlone) {
  const HostLauncher launcher;
  const at::Tensor other = at::randn({40, 20});
  other[39][3] = std::numeric_limits<float>::quiet_NaN();
  other[17][19] = std::numeric_limits<float>::infinity();
  const LayerNormBackwardArguments a{.grad = at::randn({40, 20}),
                                     .input = at::randn({40, 20}),
                                     .mean = at::zeros({40, 1}),
                                     .rstd = at::ones({40, 1}),
                                     .other = other,
                                     .copy = at::kBFloat16,
                                     .sum = at::kBFloat16};
  const at::Tensor sum = std::get<4>(layer_norm_backward(a, launcher));
  EXPECT_TRUE(sum[3].isnan().item<bool>());
  EXPECT_TRUE(sum[19].isinf().item<bool>());
  EXPECT_EQ(sum.isfinite().sum().item<int64_t>(), 18);
}

TEST(MaxPoolKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const MaxPoolCase& of : max_pool_cases()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " ", of.type));
    expect_max_pool_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(MaxPoolKernelTest, NotANumberIsTheLargest) {
  const HostLauncher launcher;
  const at::Tensor x = at::zeros({1, 1, 4, 4}).contiguous(at::MemoryFormat::ChannelsLast);
  x[0][0][1][0] = std::numeric_limits<float>::quiet_NaN();
  x[0][0][2][2] = -std::numeric_limits<float>::infinity();
  const auto [y, places] = max_pool(x, {{2, 2}, {2, 2}, {0, 0}}, launcher);
  EXPECT_TRUE(y[0][0][0][0].isnan().item<bool>());
  EXPECT_EQ(places[0][0][0][0].item<int>(), 2);
  EXPECT_EQ(places[0][0][1][1].item<int>(), 1);
}

TEST(EmbeddingGradientKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const EmbeddingGradientCase& of : embedding_gradient_cases()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.sizes), " of ", of.vocabulary, " x ", of.features));
    expect_embedding_gradient_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(EmbeddingGradientKernelTest, WhatIsNoNumberShowsInItsWordAlone) {
  const HostLauncher launcher;
  const at::Tensor grad = at::randn({80, 12}), words = at::arange(80).floor_divide(40);
  grad[45][3] = std::numeric_limits<float>::quiet_NaN();
  grad[3][11] = std::numeric_limits<float>::infinity();
  const at::Tensor other = at::zeros({5, 12}, at::kBFloat16);
  other[4][0] = -std::numeric_limits<float>::infinity();
  const at::Tensor result =
      embedding_gradient({.grad = grad, .words = words, .other = other}, launcher);
  EXPECT_TRUE(result[1][3].isnan().item<bool>());
  EXPECT_TRUE(result[0][11].isinf().item<bool>());
  EXPECT_TRUE(result[4][0].isinf().item<bool>());
  EXPECT_EQ(result.isfinite().sum().item<int64_t>(), 5 * 12 - 3);
}

TEST(FilterGradientKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const FilterGradientCase& of : filter_gradient_cases()) {
    SCOPED_TRACE(c10::str(at::IntArrayRef(of.image), " ", at::IntArrayRef(of.of.size)));
    expect_filter_gradient_as_unfused(of, launcher, at::kCPU);
  }
}

TEST(FilterGradientKernelTest, WhatIsNoNumberShowsInItsFilterOrTapAlone) {
  const HostLauncher launcher;
  const at::Tensor image = at::randn({5, 3, 9, 7}), grad = at::randn({5, 32, 7, 5});
  grad[4][30][2][2] = std::numeric_limits<float>::quiet_NaN();
  grad[1][7][0][1] = std::numeric_limits<float>::infinity();
  const FilterGradient of{.size = {32, 3, 3, 3}, .strides = {27, 9, 3, 1}};
  const at::Tensor weight = std::get<0>(filter_gradient(grad, image, of, launcher));
  EXPECT_TRUE(weight[30].isnan().all().item<bool>());
  EXPECT_TRUE(weight[7].isinf().all().item<bool>());
  EXPECT_EQ(weight.isfinite().sum().item<int64_t>(), 30 * 27);
  image[2][1][0][0] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor again = std::get<0>(filter_gradient(at::ones_like(grad), image, of, launcher));
  EXPECT_EQ(again.isnan().sum().item<int64_t>(), 32) << "a corner lies under one tap";
  EXPECT_TRUE(again.select(1, 1).select(1, 0).select(1, 0).isnan().all().item<bool>());
}

TEST(FoldImageKernelTest, GivesWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    const at::Tensor image =
        at::randn({2, 3, 9, 10}).to(type).contiguous(at::MemoryFormat::ChannelsLast);
    const std::vector<int64_t> weight = {8, 3, 7, 7}, output = {2, 8, 5, 5};
    const ImageFold fold = ImageFold::of(weight, {3, 3}, output, type);
    const at::Tensor folded = fold_image(image, fold, launcher);
    EXPECT_EQ(folded.size(1), type == at::kFloat ? 12 : 16);
    EXPECT_TRUE(at::equal(folded, fold_image_unfused(image, fold)));
  }
}

}  // namespace
}  // namespace tensorpack::cuda
