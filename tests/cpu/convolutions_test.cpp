// SPDX-License-Identifier: Apache-2.0
// Kernels of convolutions against libtorch's in double, and the pass that chooses them.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <limits>

#include "tensorpack/cpu/kernels/plain_convolution.h"
#include "tensorpack/cpu/kernels/weight_gradient.h"
#include "tensorpack/cpu/kernels/winograd.h"
#include "tensorpack/cpu/passes/passes.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/utils/processor.h"
#include "tests/graph/tracing.h"

namespace tensorpack::cpu {
namespace {

using testing::Contains;
using testing::Not;

struct Case {
  int64_t images, inputs, height, width, outputs;
  Padding padding = {1, 1};
  int64_t rows = 3, columns = 3;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.images << 'x' << c.inputs << 'x' << c.height << 'x' << c.width << " -> " << c.outputs
       << " by " << c.rows << 'x' << c.columns << ", padding " << c.padding[0] << ", "
       << c.padding[1];
}

at::Tensor channels_last(const at::Tensor& image) {
  return image.contiguous(at::MemoryFormat::ChannelsLast);
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                    const Padding& padding) {
  return at::convolution(x, w, b, {1, 1}, padding, {1, 1}, false, {0, 0}, 1);
}

// The same convolution in double, and its gradients.
struct Expected {
  at::Tensor x, w, b, grad, y, of_x, of_w, of_b;

  explicit Expected(const Case& c) {
    at::manual_seed(7);
    const auto doubles = at::TensorOptions(at::kDouble);
    x = at::randn({c.images, c.inputs, c.height, c.width}, doubles).to(at::kFloat).to(at::kDouble);
    w = at::randn({c.outputs, c.inputs, c.rows, c.columns}, doubles).to(at::kFloat);
    w = w.to(at::kDouble);
    b = at::randn({c.outputs}, doubles).to(at::kFloat).to(at::kDouble);
    y = convolve(x, w, b, c.padding);
    grad = at::randn_like(y).to(at::kFloat).to(at::kDouble);
    std::tie(of_x, of_w, of_b) =
        at::convolution_backward(grad, x, w, at::IntArrayRef({c.outputs}), {1, 1}, c.padding,
                                 {1, 1}, false, {0, 0}, 1, {true, true, true});
  }
};

// The largest error, in units of what the numbers are on average.
double error_of(const at::Tensor& value, const at::Tensor& expected) {
  EXPECT_EQ(value.sizes(), expected.sizes());
  EXPECT_EQ(value.scalar_type(), at::kFloat);
  const double size = expected.square().mean().sqrt().item<double>();
  return (value.to(at::kDouble) - expected).abs().max().item<double>() / size;
}

at::Tensor floats(const at::Tensor& tensor) { return tensor.to(at::kFloat); }

// ---- Winograd

class WinogradTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
  }
};

TEST_P(WinogradTest, IsTheConvolution) {
  const Case& c = GetParam();
  const Expected e(c);
  const at::Tensor x = channels_last(floats(e.x)), w = channels_last(floats(e.w));
  const at::Tensor y = winograd(x, w, floats(e.b), c.padding);
  EXPECT_TRUE(y.is_contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_LT(error_of(y, e.y), 1e-4);
  EXPECT_LT(error_of(winograd(x, w, {}, c.padding), e.y - e.b.view({1, -1, 1, 1})), 1e-4);
  // Whatever the layout.
  EXPECT_TRUE(at::equal(winograd(floats(e.x), floats(e.w), floats(e.b), c.padding), y));
}

TEST_P(WinogradTest, HasItsGradients) {
  const Case& c = GetParam();
  const Expected e(c);
  const at::Tensor x = channels_last(floats(e.x)), w = channels_last(floats(e.w));
  const at::Tensor grad = channels_last(floats(e.grad));
  EXPECT_LT(error_of(winograd_input_gradient(grad, w, x.sizes(), c.padding), e.of_x), 1e-4);
  EXPECT_LT(error_of(winograd_weight_gradient(grad, x, c.padding), e.of_w), 1e-4);
}

TEST_P(WinogradTest, GivesTheSameBitsOnAnyNumberOfThreads) {
  const Case& c = GetParam();
  const Expected e(c);
  const at::Tensor x = channels_last(floats(e.x)), w = channels_last(floats(e.w));
  const at::Tensor grad = channels_last(floats(e.grad));
  const auto all = [&] {
    return Tensors{winograd(x, w, {}, c.padding),
                   winograd_input_gradient(grad, w, x.sizes(), c.padding),
                   winograd_weight_gradient(grad, x, c.padding)};
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const Tensors one = all();
  at::set_num_threads(3);
  const Tensors three = all();
  at::set_num_threads(before);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], three[i])) << i;
}

INSTANTIATE_TEST_SUITE_P(Sizes, WinogradTest,
                         testing::Values(Case{1, 16, 3, 3, 16}, Case{1, 16, 1, 1, 32},
                                         Case{2, 16, 4, 4, 32}, Case{1, 48, 5, 9, 16, {0, 0}},
                                         Case{3, 32, 7, 6, 48, {2, 1}}, Case{2, 64, 8, 8, 64},
                                         Case{1, 16, 3, 3, 16, {0, 0}},
                                         Case{7, 32, 17, 15, 32, {0, 2}}));

// In a corner of a tile, in the filters and in a gradient.
TEST_F(WinogradTest, NanAndInfinityReachWhatTheyReachInLibtorch) {
  const float infinity = std::numeric_limits<float>::infinity();
  const Padding padding = {1, 1};
  for (const float value : {infinity, std::numeric_limits<float>::quiet_NaN()}) {
    at::Tensor x = channels_last(at::ones({1, 32, 16, 16}));
    const at::Tensor w = channels_last(at::ones({32, 32, 3, 3}));
    const at::Tensor clean = at::ones_like(x);
    x[0][5][8][8] = value;
    EXPECT_TRUE(at::allclose(winograd(x, w, {}, padding), plain_convolution(x, w, {}, padding),
                             1e-5, 0, /*equal_nan=*/true));
    EXPECT_TRUE(at::allclose(winograd_input_gradient(x, w, x.sizes(), padding),
                             plain_input_gradient(x, w, x.sizes(), padding), 1e-5, 0,
                             /*equal_nan=*/true));
    EXPECT_TRUE(at::allclose(winograd_weight_gradient(clean, x, padding),
                             plain_weight_gradient(clean, x, w.sizes(), padding), 1e-5, 0,
                             /*equal_nan=*/true));
    EXPECT_TRUE(winograd_weight_gradient(clean, x, padding)[0][4].isfinite().all().item<bool>());
  }
}

// Adam would make a step of what rounding leaves.
TEST_F(WinogradTest, TheGradientOfAWeightIsZeroWhereNoPixelMeetsAGradient) {
  at::manual_seed(3);
  const at::Tensor pixels = at::randn({16, 32, 14, 14}) * (at::rand({16, 1, 14, 14}) < 0.02);
  const at::Tensor gradients = at::randn({16, 32, 14, 14}) * (at::rand({16, 32, 14, 14}) < 0.02);
  const at::Tensor x = channels_last(pixels), grad = channels_last(gradients);
  const at::Tensor expected = plain_weight_gradient(grad, x, {32, 32, 3, 3}, {1, 1});
  const at::Tensor is_zero = expected == 0;
  ASSERT_GT(is_zero.sum().item<int64_t>(), 500);
  EXPECT_TRUE(
      (winograd_weight_gradient(grad, x, {1, 1}) == 0).masked_select(is_zero).all().item<bool>());
}

TEST_F(WinogradTest, FitsWhatIsWorthIt) {
  const Padding one = {1, 1};
  EXPECT_TRUE(fits_winograd({64, 64, 32, 32}, {64, 64, 3, 3}, one));
  EXPECT_TRUE(fits_winograd({64, 512, 4, 4}, {512, 512, 3, 3}, one));
  EXPECT_FALSE(fits_winograd({64, 64, 32, 32}, {64, 64, 1, 1}, {0, 0}));
  EXPECT_FALSE(fits_winograd({64, 3, 32, 32}, {64, 3, 3, 3}, one));    // few channels
  EXPECT_FALSE(fits_winograd({64, 64, 32, 32}, {40, 64, 3, 3}, one));  // half a panel
  EXPECT_FALSE(fits_winograd({1, 512, 4, 4}, {512, 512, 3, 3}, one));  // few tiles
  EXPECT_FALSE(fits_winograd({64, 64, 5, 5}, {64, 64, 3, 3}, one));    // tiles are mostly empty
  EXPECT_FALSE(fits_winograd({64, 64, 32, 32}, {64, 64, 3, 3}, {3, 3}));
  EXPECT_FALSE(fits_winograd({0, 64, 32, 32}, {64, 64, 3, 3}, one));
  EXPECT_FALSE(fits_winograd({64, 64, 2, 2}, {64, 64, 3, 3}, {0, 0}));
}

// ---- weights over one channel

class WeightGradientTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
  }
};

TEST_P(WeightGradientTest, IsThatOfTheConvolution) {
  const Case& c = GetParam();
  const Expected e(c);
  for (const bool last : {false, true}) {
    const at::Tensor grad = last ? channels_last(floats(e.grad)) : floats(e.grad);
    const auto [of_w, of_b] = weight_gradient(grad, floats(e.x), e.w.sizes(), c.padding);
    EXPECT_LT(error_of(of_w, e.of_w), 1e-5);
    EXPECT_LT(error_of(of_b, e.of_b), 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, WeightGradientTest,
                         testing::Values(Case{1, 1, 1, 1, 1}, Case{2, 1, 28, 28, 20, {0, 0}, 5, 5},
                                         Case{17, 1, 9, 11, 3, {2, 1}, 5, 3},
                                         Case{3, 1, 8, 8, 7, {3, 3}, 7, 7},
                                         Case{40, 1, 12, 10, 2, {0, 2}, 1, 5}));

TEST_F(WeightGradientTest, OfNoImagesIsZero) {
  const auto [of_w, of_b] =
      weight_gradient(at::empty({0, 2, 4, 4}), at::empty({0, 1, 6, 6}), {2, 1, 3, 3}, {0, 0});
  EXPECT_TRUE(at::equal(of_w, at::zeros({2, 1, 3, 3})));
  EXPECT_TRUE(at::equal(of_b, at::zeros({2})));
}

TEST_F(WeightGradientTest, KeepsNanAndInfinityWhereTheyBelong) {
  const float infinity = std::numeric_limits<float>::infinity();
  at::Tensor grad = at::ones({1, 2, 4, 4});
  grad[0][1][3][3] = infinity;
  const auto [of_w, of_b] = weight_gradient(grad, at::ones({1, 1, 4, 4}), {2, 1, 3, 3}, {1, 1});
  EXPECT_TRUE(of_w[0].isfinite().all().item<bool>());
  EXPECT_EQ(of_b[1].item<float>(), infinity);
  EXPECT_EQ(of_w[1][0][1][1].item<float>(), infinity);
}

TEST_F(WeightGradientTest, FitsImagesOfOneChannel) {
  EXPECT_TRUE(fits_weight_gradient({128, 20, 24, 24}, {20, 1, 5, 5}));
  EXPECT_FALSE(fits_weight_gradient({128, 20, 24, 24}, {20, 3, 5, 5}));
  EXPECT_FALSE(fits_weight_gradient({128, 20, 24, 25}, {20, 1, 5, 4}));
  EXPECT_FALSE(fits_weight_gradient({1, 20, 24, 24}, {20, 1, 5, 5}));  // not worth it
}

// ---- the pass

struct Layer {
  int64_t images = 4, inputs = 32, outputs = 32, size = 3;
  int64_t stride = 1, padding = 1, dilation = 1, groups = 1;
  bool is_channels_last = true, has_bias = true, needs_input_gradient = true;
  at::ScalarType type = at::kFloat;
};

class ChoiceTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_avx2()) GTEST_SKIP() << "This processor has no AVX2.";
  }
  // The operators of a convolution and its gradients, after the pass; results stay what they were.
  std::vector<std::string> choose(const Layer& layer) {
    const auto format =
        layer.is_channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
    at::manual_seed(1);
    const auto options = at::TensorOptions(layer.type);
    const Tensors inputs = {
        at::randn({layer.images, layer.inputs, 16, 16}, options).contiguous(format)};
    const at::Tensor w =
        at::randn({layer.outputs, layer.inputs / layer.groups, layer.size, layer.size}, options)
            .contiguous(format)
            .set_requires_grad(true);
    const at::Tensor b = at::randn({layer.outputs}, options).set_requires_grad(true);
    const at::Tensor scale = at::ones({1}, options).set_requires_grad(true);
    Trace trace = trace_of(inputs, {w, b, scale}, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor x = layer.needs_input_gradient ? in[0] * scale : in[0];
      const at::Tensor y = at::conv2d(x, w, layer.has_bias ? b : at::Tensor(), layer.stride,
                                      layer.padding, layer.dilation, layer.groups);
      const at::Tensor cost = y.square().mean();
      Tensors trained = {w};
      if (layer.has_bias) trained.push_back(b);
      if (layer.needs_input_gradient) trained.push_back(scale);
      const Tensors grads = torch::autograd::grad({cost}, trained);
      NamedTensors outputs = {{"y", y}};
      for (size_t i = 0; i < grads.size(); ++i) {
        outputs.emplace("grad" + std::to_string(i), grads[i]);
      }
      return outputs;
    });
    std::vector<std::string> fetches;
    for (const auto& [name, id] : trace.outputs) fetches.push_back(name);
    tensorpack::optimize(trace, fetches);
    Tensors before;
    for (const std::string& name : fetches) before.push_back(run(trace, inputs, name));
    choose_convolutions(trace);
    for (size_t i = 0; i < fetches.size(); ++i) {
      const at::Tensor after = run(trace, inputs, fetches[i]);
      const double size = before[i].abs().max().item<double>();
      EXPECT_TRUE(at::allclose(after, before[i], 1e-4, 1e-5 * size)) << fetches[i];
      EXPECT_EQ(after.strides(), before[i].strides()) << fetches[i];
    }
    return operators(trace);
  }
  void expect_left_alone(const Layer& layer) {
    const std::vector<std::string> names = choose(layer);
    EXPECT_THAT(names, Contains("aten::convolution"));
    EXPECT_THAT(names, Contains("aten::convolution_backward"));
    for (const std::string& name : names) EXPECT_EQ(name.rfind("tensorpack::", 0), name.npos);
  }
};

TEST_F(ChoiceTest, TakesWinogradFor3x3FiltersBothWays) {
  for (const bool has_bias : {true, false}) {
    const std::vector<std::string> names = choose({.has_bias = has_bias});
    EXPECT_THAT(names, Contains("tensorpack::winograd"));
    EXPECT_THAT(names, Contains("tensorpack::winograd_backward"));
    EXPECT_THAT(names, Not(Contains("aten::convolution")));
    EXPECT_THAT(names, Not(Contains("aten::convolution_backward")));
  }
  EXPECT_THAT(choose({.needs_input_gradient = false}), Contains("tensorpack::winograd_backward"));
}

TEST_F(ChoiceTest, TakesWeightGradientsOverGreyImages) {
  for (const bool has_bias : {true, false}) {
    const std::vector<std::string> names = choose({.images = 32,
                                                   .inputs = 1,
                                                   .outputs = 20,
                                                   .size = 5,
                                                   .padding = 2,
                                                   .is_channels_last = false,
                                                   .has_bias = has_bias,
                                                   .needs_input_gradient = false});
    EXPECT_THAT(names, Contains("aten::convolution"));
    EXPECT_THAT(names, Contains("tensorpack::weight_gradient"));
  }
  // All gradients are asked for.
  expect_left_alone({.images = 32, .inputs = 1, .outputs = 20, .is_channels_last = false});
}

TEST_F(ChoiceTest, LeavesOtherConvolutionsAlone) {
  expect_left_alone({.stride = 2});
  expect_left_alone({.padding = 2, .dilation = 2});
  expect_left_alone({.groups = 2});
  expect_left_alone({.size = 5, .padding = 2});
  expect_left_alone({.outputs = 24});
  expect_left_alone({.is_channels_last = false});
  expect_left_alone({.type = at::kDouble});
}

}  // namespace
}  // namespace tensorpack::cpu
