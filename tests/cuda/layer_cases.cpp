// SPDX-License-Identifier: Apache-2.0
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tensorpack/cuda/kernels/bias_relu.h"
#include "tensorpack/cuda/kernels/cross_entropy.h"
#include "tensorpack/cuda/kernels/embedding_gradient.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/kernel_expectations.h"

namespace tensorpack::cuda {

std::vector<CrossEntropyCase> cross_entropy_cases() {
  return {{5, 10, c10::kFloat, c10::kFloat, true},
          {1, 1, c10::kFloat, c10::kFloat, true},
          {3, 1000, c10::kBFloat16, c10::kBFloat16, true},
          {2, 9000, c10::kBFloat16, c10::kBFloat16, false},
          {4, 77, c10::kHalf, c10::kFloat, true},
          {2, 5003, c10::kFloat, c10::kBFloat16, false}};
}

void expect_cross_entropy_as_unfused(const CrossEntropyCase& of, const Launcher& launcher,
                                     c10::Device device) {
  at::manual_seed(5);
  const at::Tensor logits = at::randn({of.rows, of.classes}).mul_(4).to(of.type).to(device);
  at::Tensor target = at::randint(of.classes, {of.rows}, at::kLong);
  if (of.rows > 2) target[1] = -100;
  const CrossEntropyArguments a{.logits = logits,
                                .target = target.to(device),
                                .loss_grad = at::full({}, 2.5F).to(device),
                                .mean = of.mean,
                                .grad_type = of.grad_type};
  const auto [loss, count, grad] = cross_entropy(a, launcher);
  const auto [loss0, count0, grad0] = cross_entropy_unfused(a);
  EXPECT_EQ(grad.scalar_type(), of.grad_type);
  expect_within(loss0, loss, 1e-5, "loss");
  EXPECT_EQ(count.item<float>(), count0.item<float>());
  expect_within(grad0, grad, tolerance_of(of.grad_type), "gradient");
  if (of.rows > 2) {
    EXPECT_EQ(grad[1].abs().max().item<float>(), 0) << "an ignored row";
  }
}

std::vector<EmbeddingGradientCase> embedding_gradient_cases() {
  using enum EmbeddingGradientCase::Words;
  return {{{4, 16}, 100, 768, c10::kBFloat16},      {{300}, 50, 64, c10::kBFloat16, kFew, 1},
          {{2, 129}, 33, 20, c10::kFloat, kOne},    {{31}, 40, 7, c10::kHalf, kFew, -1, c10::kInt},
          {{70}, 31, 130, c10::kFloat, kRandom, 3}, {{1}, 1, 1, c10::kFloat},
          {{64}, 2, 4, c10::kBFloat16, kOne, 1}};
}

void expect_embedding_gradient_as_unfused(const EmbeddingGradientCase& of, const Launcher& launcher,
                                          c10::Device device) {
  using Words = EmbeddingGradientCase::Words;
  at::manual_seed(15);
  at::Tensor words = at::randint(of.vocabulary, of.sizes, at::kLong);
  if (of.words == Words::kFew) words.remainder_(3);
  if (of.words == Words::kOne) words.fill_(of.vocabulary - 1);
  std::vector<int64_t> sizes = of.sizes;
  sizes.push_back(of.features);
  const EmbeddingGradientArguments a{
      .grad = at::randn(sizes).to(device),
      .words = words.to(of.of_words).to(device),
      .other = at::randn({of.vocabulary, of.features}).to(of.type).to(device),
      .padding_idx = of.padding_idx};
  const at::Tensor result = embedding_gradient(a, launcher);
  const at::Tensor expected = embedding_gradient_unfused(
      {a.grad.cpu().to(at::kDouble), a.words.cpu(), a.other.cpu().to(at::kDouble), a.padding_idx});
  EXPECT_EQ(result.scalar_type(), at::kFloat);
  EXPECT_EQ(result.strides(), a.other.strides());
  expect_within(expected, result, 1e-5, "gradient");
  expect_within(embedding_gradient_unfused(a), result, 2e-5, "by libtorch's");
  at::Tensor is_there = at::zeros({of.vocabulary}, at::kBool);
  is_there.index_fill_(0, words.flatten(), true);
  if (of.padding_idx >= 0) is_there[of.padding_idx] = false;
  const at::Tensor others = is_there.logical_not().nonzero().flatten().to(device);
  EXPECT_TRUE(
      at::equal(result.index_select(0, others), a.other.to(at::kFloat).index_select(0, others)));
  EXPECT_TRUE(at::equal(result, embedding_gradient(a, launcher))) << "other bits";
}

std::vector<FilterGradientCase> filter_gradient_cases() {
  using Case = FilterGradientCase;
  using enum Case::Layout;
  const auto filters = [](std::vector<int64_t> size, int64_t stride, int64_t padding,
                          bool bias = false) {
    const std::vector<int64_t> strides = at::empty(size).strides().vec();
    return FilterGradient{size, strides, {stride, stride}, {padding, padding}, {1, 1}, bias};
  };
  FilterGradient in_channels_last = filters({64, 3, 3, 3}, 1, 1);
  in_channels_last.strides = {27, 1, 9, 3};
  FilterGradient uneven = filters({100, 1, 3, 2}, 1, 0, true);
  uneven.stride = {1, 2};
  uneven.padding = {2, 1};
  uneven.dilation = {2, 3};
  return {{{5, 3, 9, 7}, filters({32, 3, 3, 3}, 1, 1)},
          {{4, 1, 12, 11}, filters({32, 1, 5, 5}, 2, 2, true), kContiguous},
          {{2, 3, 8, 8}, in_channels_last, kChannelsLast, kChannelsLast, c10::kBFloat16},
          {{3, 4, 7, 6}, filters({20, 4, 5, 5}, 1, 0, true), kPart, kPart, c10::kHalf},
          {{1, 2, 1, 1}, filters({1, 2, 1, 1}, 1, 0, true)},
          {{2, 1, 6, 6}, uneven, kContiguous, kChannelsLast},
          {{2, 3, 9, 9}, filters({7, 3, 3, 3}, 2, 1), kChannelsLast, kContiguous, c10::kBFloat16},
          {{7, 2, 9, 8}, filters({16, 2, 8, 7}, 1, 1)},
          {{40, 1, 7, 7}, filters({16, 1, 3, 3}, 1, 0)}};
}

void expect_filter_gradient_as_unfused(const FilterGradientCase& of, const Launcher& launcher,
                                       c10::Device device) {
  using Layout = FilterGradientCase::Layout;
  at::manual_seed(7);
  const auto draw = [&](std::vector<int64_t> size, Layout layout) {
    if (layout == Layout::kPart) {
      size[1] += 1;
      size[3] += 2;
    }
    const at::Tensor all = at::randn(size).to(of.type).to(device);
    if (layout == Layout::kPart) return all.slice(1, 1).slice(3, 1, size[3] - 1);
    return layout == Layout::kChannelsLast ? all.contiguous(at::MemoryFormat::ChannelsLast) : all;
  };
  const FilterGradient& f = of.of;
  const auto places = [&](size_t i) {
    return (of.image[2 + i] + 2 * f.padding[i] - f.dilation[i] * (f.size[2 + i] - 1) - 1) /
               f.stride[i] +
           1;
  };
  const at::Tensor image = draw(of.image, of.of_image);
  const at::Tensor grad = draw({of.image[0], f.size[0], places(0), places(1)}, of.of_grad);
  const auto [weight, bias] = filter_gradient(grad, image, f, launcher);
  const auto in_double = [](const at::Tensor& t) { return t.cpu().to(at::kDouble).contiguous(); };
  const auto [weight0, bias0] = filter_gradient_unfused(in_double(grad), in_double(image), f);
  EXPECT_EQ(weight.strides(), at::IntArrayRef(f.strides));
  EXPECT_EQ(weight.scalar_type(), of.type);
  expect_within(weight0, weight, tolerance_of(of.type), "gradient of the filters");
  EXPECT_EQ(bias.defined(), f.bias);
  if (f.bias) expect_within(bias0, bias, tolerance_of(of.type), "gradient of the bias");
  const auto again = filter_gradient(grad, image, f, launcher);
  EXPECT_TRUE(at::equal(weight, std::get<0>(again))) << "other bits";
}

std::vector<MaxPoolCase> max_pool_cases() {
  return {{{2, 8, 7, 9}, {{3, 3}, {2, 2}, {1, 1}}, c10::kBFloat16},
          {{1, 3, 6, 6}, {{2, 2}, {2, 2}, {0, 0}}, c10::kFloat},
          {{2, 4, 5, 8}, {{3, 2}, {1, 3}, {1, 0}}, c10::kFloat},
          {{1, 16, 9, 9}, {{2, 2}, {4, 3}, {1, 1}}, c10::kHalf},
          {{1, 1, 1, 1}, {{1, 1}, {1, 1}, {0, 0}}, c10::kFloat}};
}

void expect_max_pool_as_unfused(const MaxPoolCase& of, const Launcher& launcher,
                                c10::Device device) {
  at::manual_seed(6);
  // Few values, so that maxima are shared: the first of them counts.
  const auto draw = [&](at::IntArrayRef sizes) {
    return at::randint(-4, 4, sizes)
        .to(of.type)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .to(device);
  };
  const at::Tensor x = draw(of.sizes);
  const auto [y, places] = max_pool(x, of.window, launcher);
  const auto [y0, places0] = max_pool_unfused(x.to(at::kFloat), of.window);
  EXPECT_TRUE(at::equal(y.to(at::kFloat), y0));
  EXPECT_TRUE(at::equal(places, places0));
  EXPECT_EQ(y.strides(), y0.strides());
  const at::Tensor grad = draw(y.sizes());
  const at::Tensor dx = max_pool_backward(grad, places, x.sizes(), of.window, launcher);
  const at::Tensor dx0 =
      max_pool_backward_unfused(grad.to(at::kFloat), places, x.sizes(), of.window);
  EXPECT_TRUE(at::equal(dx.to(at::kFloat), dx0));
  EXPECT_EQ(dx.strides(), x.strides());
}

void expect_bias_relu_as_unfused(at::IntArrayRef sizes, c10::ScalarType type,
                                 c10::ScalarType of_bias, const Launcher& launcher,
                                 c10::Device device) {
  at::manual_seed(10);
  const auto draw = [&] {
    return at::randn(sizes).to(type).contiguous(at::MemoryFormat::ChannelsLast).to(device);
  };
  const at::Tensor x = draw(), grad = draw(), counters = make_counters(device);
  const at::Tensor bias = at::randn({sizes[1]}).to(of_bias).to(device);
  const at::Tensor y = bias_relu(x, bias, launcher);
  EXPECT_EQ(y.strides(), x.strides());
  expect_within(bias_relu_unfused(x.to(at::kFloat), bias), y, tolerance_of(type), "y");
  const auto [dx, db] = bias_relu_backward(grad, y, counters, of_bias, launcher);
  const auto [dx0, db0] =
      bias_relu_backward_unfused(grad.to(at::kFloat), y.to(at::kFloat), at::kFloat);
  EXPECT_TRUE(at::equal(dx.to(at::kFloat), dx0));
  EXPECT_EQ(db.scalar_type(), of_bias);
  expect_within(db0, db, tolerance_of(of_bias), "gradient of the bias");
  expect_zeros(counters);
}

}  // namespace tensorpack::cuda
