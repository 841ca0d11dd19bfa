// SPDX-License-Identifier: Apache-2.0
// Fusion of losses, biases and pooling, on traces of the CPU.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <functional>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::Contains;
using testing::Not;

// ---- cross entropy

class CrossEntropyFusionTest : public testing::Test {
 protected:
  // A linear classifier with the casts of mixed precision around its loss.
  void trace(bool casts, int64_t reduction = at::Reduction::Mean) {
    trace_ = trace_of(inputs_, {w_}, [&](const Tensors& in) -> NamedTensors {
      at::Tensor logits = at::mm(in[0], w_);
      if (casts) logits = logits.to(at::kBFloat16).to(at::kFloat);
      const at::Tensor cost = at::cross_entropy_loss(logits, in[1], {}, reduction);
      return {{"cost", cost}, {"grad", torch::autograd::grad({cost}, {w_})[0]}};
    });
    optimize_generally();
  }
  void optimize_generally() { tensorpack::optimize(trace_, {"cost", "grad"}); }
  void expect_same_after_fusion() {
    const Tensors expected = outcome_of(trace_, inputs_, {w_});
    EXPECT_EQ(fuse_cross_entropy(trace_, at::kCPU), 1);
    eliminate_dead_code(trace_, {"cost", "grad"});
    expect_close(expected, outcome_of(trace_, inputs_, {w_}));
    EXPECT_THAT(operators(trace_), Not(Contains("aten::_log_softmax")));
  }

  at::Tensor w_ = at::randn({6, 10}).set_requires_grad(true);
  Tensors inputs_ = {at::randn({4, 6}), at::arange(4)};
  Trace trace_;
};

TEST_F(CrossEntropyFusionTest, LossAndGradientAreOneOperator) {
  for (const auto reduction : {at::Reduction::Mean, at::Reduction::Sum}) {
    trace(/*casts=*/false, reduction);
    expect_same_after_fusion();
  }
}

TEST_F(CrossEntropyFusionTest, CastsBecomePartOfIt) {
  trace(/*casts=*/true);
  expect_same_after_fusion();
  // What is left is the cast to bfloat16 of the product, and of its gradient back.
  EXPECT_EQ(count(trace_, "aten::_to_copy"), 2);
}

TEST_F(CrossEntropyFusionTest, ProbabilitiesThatAreReadElsewhereAreComputed) {
  trace_ = trace_of(inputs_, {w_}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor log_probabilities = at::log_softmax(at::mm(in[0], w_), 1);
    const at::Tensor cost = at::nll_loss(log_probabilities, in[1]);
    return {{"cost", cost},
            {"grad", torch::autograd::grad({cost}, {w_})[0]},
            {"probabilities", log_probabilities.exp()}};
  });
  tensorpack::optimize(trace_, {"cost", "grad", "probabilities"});
  EXPECT_EQ(fuse_cross_entropy(trace_, at::kCPU), 0);
}

// ---- biases

TEST(BiasReluFusionTest, BiasesOfConvolutionsGoWithTheRelu) {
  const at::Tensor w =
      at::randn({8, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  const at::Tensor b = at::randn({8}).set_requires_grad(true);
  const Tensors input = {image()};
  Trace trace = trace_of(input, {w, b}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = at::relu(at::conv2d(in[0], w, b, 1, 1));
    const auto grads = torch::autograd::grad({y.square().sum()}, {w, b});
    return {{"y", y}, {"w", grads[0]}, {"b", grads[1]}};
  });
  eliminate_dead_code(trace, {"b", "w", "y"});
  const Tensors expected = outcome_of(trace, input, {w, b});
  ASSERT_THAT(operators(trace), Contains("aten::convolution"));
  EXPECT_EQ(fuse_bias_relu(trace, at::kCPU), 2);
  eliminate_dead_code(trace, {"b", "w", "y"});
  expect_close(expected, outcome_of(trace, input, {w, b}));
  EXPECT_THAT(operators(trace), Not(Contains("aten::relu")));
  EXPECT_THAT(operators(trace), Not(Contains("aten::threshold_backward")));
  EXPECT_THAT(operators(trace), Contains("tensorpack::bias_relu_backward"));
}

TEST(BiasReluFusionTest, ConvolutionsWithoutReluKeepTheirBias) {
  const at::Tensor w = at::randn({8, 8, 1, 1}).contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor b = at::randn({8});
  Trace trace = trace_of({image()}, {w, b}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = at::conv2d(in[0], w, b);
    return {{"y", at::relu(y)}, {"z", y.exp()}};
  });
  EXPECT_EQ(fuse_bias_relu(trace, at::kCPU), 0);
}

// ---- pooling

TEST(MaxPoolFusionTest, PlacesTakeAByte) {
  const at::Tensor scale = at::ones({1}).set_requires_grad(true);
  const Tensors input = {image()};
  Trace trace = trace_of(input, {scale}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = at::max_pool2d(in[0] * scale, {3, 3}, {2, 2}, {1, 1});
    return {{"y", y}, {"grad", torch::autograd::grad({y.square().sum()}, {scale})[0]}};
  });
  eliminate_dead_code(trace, {"y", "grad"});
  const Tensors expected = outcome_of(trace, input, {scale});
  EXPECT_EQ(fuse_max_pool(trace, at::kCPU), 2);
  expect_close(expected, outcome_of(trace, input, {scale}));
  EXPECT_THAT(operators(trace), Not(Contains("aten::max_pool2d_with_indices")));
  const Node& node = *std::find_if(trace.nodes.begin(), trace.nodes.end(), [](const Node& one) {
    return one.op_name() == "tensorpack::max_pool";
  });
  const Value& places = trace.values[node.results[1].ids[0]];
  EXPECT_EQ(places.options.dtype(), at::kByte);
  EXPECT_EQ(places.storage_bytes, 2 * 8 * 2 * 2);
}

// Two convolutions with bias, relu and pooling of overlapping windows, trained.
class PoolingFirstTest : public testing::Test {
 protected:
  void trace(bool reads_unpooled = false) {
    trace_ = trace_of(input_, variables_, [&](const Tensors& in) -> NamedTensors {
      at::Tensor x = in[0];
      for (size_t i = 0; i < 4; i += 2) {
        x = at::relu(at::conv2d(x, variables_[i], variables_[i + 1], 1, 1));
        if (reads_unpooled) x = x + x.mean();
        x = at::max_pool2d(x, {3, 3}, {2, 2}, {1, 1});
      }
      const auto grads = torch::autograd::grad({x.square().sum()}, variables_);
      return {{"a", grads[0]}, {"b", grads[1]}, {"c", grads[2]}, {"d", grads[3]}, {"x", x}};
    });
    tensorpack::optimize(trace_, fetches_);
  }
  // Gradients are sums of many numbers that nearly cancel: the largest sets the scale.
  void expect_same_as(const Tensors& expected) {
    const Tensors values = outcome_of(trace_, input_, variables_);
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const at::Tensor difference = (values[i] - expected[i]).abs().max();
      EXPECT_LE(difference.item<float>(), 1e-4F * expected[i].abs().max().item<float>()) << i;
      EXPECT_EQ(values[i].strides(), expected[i].strides()) << i;
    }
  }
  static at::Tensor filters() {
    return at::randn({8, 8, 3, 3})
        .contiguous(at::MemoryFormat::ChannelsLast)
        .set_requires_grad(true);
  }

  const std::vector<std::string> fetches_ = {"a", "b", "c", "d", "x"};
  const Tensors input_ = {at::randn({2, 8, 9, 7}).contiguous(at::MemoryFormat::ChannelsLast)};
  const Tensors variables_ = {filters(), at::randn({8}).set_requires_grad(true), filters(),
                              at::randn({8}).set_requires_grad(true)};
  Trace trace_;
};

TEST_F(PoolingFirstTest, BiasAndReluFollowThePoolingBothWays) {
  trace();
  const Tensors expected = outcome_of(trace_, input_, variables_);
  EXPECT_EQ(pool_before_relu(trace_, at::kCPU), 2);
  EXPECT_THAT(operators(trace_), Not(Contains("aten::relu")));
  EXPECT_EQ(count(trace_, "aten::threshold_backward"), 2);
  expect_same_as(expected);
  for (const Node& node : trace_.nodes) {
    if (node.op_name() != "tensorpack::bias_relu") continue;
    const Value& value = trace_.values[node.results[0].ids[0]];
    EXPECT_LE(value.sizes[2], 5);  // pooled
  }
  // What follows finds its patterns.
  EXPECT_EQ(fuse_max_pool(trace_, at::kCPU), 4);
  fuse_bias_relu(trace_, at::kCPU);
  expose_biases(trace_, at::kCPU);
  fuse_pointwise(trace_, at::kCPU);
  fuse_column_sums(trace_, at::kCPU);
  eliminate_dead_code(trace_, fetches_);
  expect_same_as(expected);
}

TEST_F(PoolingFirstTest, WithoutABackwardPassItMovesAsWell) {
  Trace trace = trace_of(input_, variables_, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = at::relu(at::conv2d(in[0], variables_[0], variables_[1], 1, 1));
    return {{"y", at::max_pool2d(y, {2, 2})}};
  });
  tensorpack::optimize(trace, {"y"});
  const at::Tensor expected = run(trace, input_, "y");
  EXPECT_EQ(pool_before_relu(trace, at::kCPU), 1);
  EXPECT_TRUE(at::allclose(run(trace, input_, "y"), expected, 1e-4, 1e-4));
}

TEST_F(PoolingFirstTest, NumbersThatAreReadBeforePoolingStay) {
  trace(/*reads_unpooled=*/true);
  EXPECT_EQ(pool_before_relu(trace_, at::kCPU), 0);
}

TEST_F(PoolingFirstTest, WhatIsNotANumberStaysOne) {
  Trace trace = trace_of(input_, variables_, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = at::relu(at::conv2d(in[0], variables_[0], variables_[1], 1, 1));
    return {{"y", at::max_pool2d(y, {2, 2})}};
  });
  tensorpack::optimize(trace, {"y"});
  pool_before_relu(trace, at::kCPU);
  for (const double number : {NAN, INFINITY, -INFINITY}) {
    at::Tensor batch = input_[0].clone();
    batch[0][3][4][4] = number;
    const at::Tensor conv = at::conv2d(batch, variables_[0], variables_[1], 1, 1);
    const at::Tensor expected = at::max_pool2d(at::relu(conv), {2, 2});
    EXPECT_TRUE(at::allclose(run(trace, {batch}, "y"), expected, 1e-4, 1e-4, /*equal_nan=*/true));
  }
}

TEST(MaxPoolFusionTest, IndicesThatAreReadElsewhereStay) {
  Trace trace = trace_of({image()}, {}, [](const Tensors& in) -> NamedTensors {
    const auto [y, indices] = at::max_pool2d_with_indices(in[0], {2, 2});
    return {{"y", y}, {"indices", indices}};
  });
  EXPECT_EQ(fuse_max_pool(trace, at::kCPU), 0);
}

// ---- folded images

class FoldedImagesTest : public testing::Test {
 protected:
  // A convolution of an image, and the gradient of its weights.
  void trace(at::IntArrayRef image, at::IntArrayRef weight, int64_t stride, int64_t padding) {
    const auto draw = [](at::IntArrayRef size) {
      return at::randn(size).contiguous(at::MemoryFormat::ChannelsLast);
    };
    inputs_ = {draw(image)};
    w_ = draw(weight).set_requires_grad(true);
    trace_ = trace_of(inputs_, {w_}, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor y = at::conv2d(in[0], w_, {}, stride, padding);
      return {{"y", y}, {"w", torch::autograd::grad({y.square().mean()}, {w_})[0]}};
    });
    tensorpack::optimize(trace_, {"w", "y"});
  }
  void expect_same_after_folding() {
    const Tensors expected = outcome_of(trace_, inputs_, {w_});
    EXPECT_EQ(fold_images(trace_, at::kCPU), 3);
    EXPECT_THAT(operators(trace_), Not(Contains("aten::convolution")));
    EXPECT_THAT(operators(trace_), Not(Contains("aten::convolution_backward")));
    expect_close(expected, outcome_of(trace_, inputs_, {w_}));
  }

  Tensors inputs_;
  at::Tensor w_;
  Trace trace_;
};

TEST_F(FoldedImagesTest, ConvolutionsOfStrideTwoGiveTheSame) {
  trace({2, 3, 20, 20}, {8, 3, 7, 7}, 2, 3);
  expect_same_after_folding();
  trace({1, 3, 15, 12}, {8, 3, 3, 3}, 2, 0);
  expect_same_after_folding();
  trace({2, 2, 9, 9}, {8, 2, 4, 5}, 2, 1);
  expect_same_after_folding();
  trace({1, 4, 11, 8}, {8, 4, 3, 3}, 2, 1);
  expect_same_after_folding();
}

TEST_F(FoldedImagesTest, OthersStayAsTheyAre) {
  trace({2, 3, 8, 8}, {8, 3, 3, 3}, 1, 1);
  EXPECT_EQ(fold_images(trace_, at::kCPU), 0);
  trace({2, 8, 8, 8}, {8, 8, 3, 3}, 2, 1);
  EXPECT_EQ(fold_images(trace_, at::kCPU), 0);
  trace({2, 3, 8, 8}, {8, 3, 2, 2}, 2, 0);  // oneDNN 2.6 does not bear 1x1
  EXPECT_EQ(fold_images(trace_, at::kCPU), 0);
}

// ---- gradients of filters

class FilterGradientsTest : public testing::Test {
 protected:
  using Layer = std::function<at::Tensor(const at::Tensor& x, const at::Tensor& w)>;

  // A layer, and the gradients of its filters, its bias and, if wanted, its input.
  void trace(const Layer& layer, const at::Tensor& input, at::IntArrayRef weight, bool of_input) {
    inputs_ = {input};
    w_ = at::randn(weight, input.options())
             .contiguous(input.suggest_memory_format())
             .set_requires_grad(true);
    trace_ = trace_of(inputs_, {w_, bias_}, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor x = in[0].detach().set_requires_grad(of_input);
      const at::Tensor y = layer(x, w_);
      Tensors of = {w_};
      if (uses_bias_) of.push_back(bias_);
      if (of_input) of.push_back(x);
      const auto gradients = torch::autograd::grad({y.square().mean()}, of);
      NamedTensors named{{"y", y}};
      for (size_t i = 0; i < of.size(); ++i) named.insert({std::to_string(i), gradients[i]});
      return named;
    });
    std::vector<std::string> names;
    for (const auto& [name, id] : trace_.outputs) names.push_back(name);
    tensorpack::optimize(trace_, names);
  }
  void expect_same(int made) {
    const Tensors expected = outcome_of(trace_, inputs_, {w_, bias_});
    EXPECT_EQ(fuse_filter_gradients(trace_, at::kCPU), made);
    EXPECT_EQ(count(trace_, "tensorpack::filter_gradient"), made);
    expect_close(expected, outcome_of(trace_, inputs_, {w_, bias_}));
  }

  bool uses_bias_ = false;
  at::Tensor bias_ = at::randn({8}).set_requires_grad(true);
  Tensors inputs_;
  at::Tensor w_;
  Trace trace_;
};

TEST_F(FilterGradientsTest, OfAFirstLayerTakeThePlaceOfItsBackward) {
  const Layer layer = [](const at::Tensor& x, const at::Tensor& w) {
    return at::conv2d(x, w, {}, 1, 1);
  };
  trace(layer, at::randn({2, 3, 9, 8}), {8, 3, 3, 3}, false);
  expect_same(1);
  EXPECT_EQ(count(trace_, "aten::convolution_backward"), 0);
  trace(layer, at::randn({2, 3, 9, 8}).contiguous(at::MemoryFormat::ChannelsLast), {8, 3, 3, 3},
        false);
  expect_same(1);
}

TEST_F(FilterGradientsTest, LeaveTheGradientOfTheInputAndTakeThatOfTheBias) {
  uses_bias_ = true;
  trace([&](const at::Tensor& x, const at::Tensor& w) { return at::conv2d(x, w, bias_, 2, 2); },
        at::randn({2, 1, 9, 8}), {8, 1, 5, 5}, true);
  expect_same(1);
  EXPECT_EQ(count(trace_, "aten::convolution_backward"), 1);
  EXPECT_EQ(count(trace_, "aten::sum.dim_IntList"), 0);
}

TEST_F(FilterGradientsTest, OfTransposedConvolutionsHaveTheGradientAsTheImage) {
  bias_ = at::randn({1}).set_requires_grad(true);
  uses_bias_ = true;
  trace([&](const at::Tensor& x,
            const at::Tensor& w) { return at::conv_transpose2d(x, w, bias_, 2, 2, 1); },
        at::randn({2, 8, 5, 4}), {8, 1, 5, 5}, true);
  expect_same(1);
  EXPECT_EQ(count(trace_, "aten::convolution_backward"), 1);
  EXPECT_EQ(count(trace_, "aten::sum.dim_IntList"), 1) << "of the bias";
}

TEST_F(FilterGradientsTest, OthersStayAsTheyAre) {
  const auto convolution = [](int64_t groups) -> Layer {
    return [=](const at::Tensor& x, const at::Tensor& w) {
      return at::conv2d(x, w, {}, 1, 1, 1, groups);
    };
  };
  trace(convolution(1), at::randn({2, 8, 9, 8}), {8, 8, 3, 3}, false);
  expect_same(0);
  trace(convolution(2), at::randn({2, 4, 9, 8}), {8, 2, 3, 3}, false);
  expect_same(0);
  trace(convolution(1), at::randn({2, 3, 12, 12}), {8, 3, 7, 7}, false);
  expect_same(0);
  trace(convolution(1), at::randn({2, 3, 9, 8}).to(at::kDouble), {8, 3, 3, 3}, false);
  expect_same(0);
  trace(convolution(1), at::randn({1, 3, 9, 8}), {8, 3, 3, 3}, false);
  for (Value& value : trace_.values) {
    if (value.sizes.size() == 4 && value.sizes[0] == 1) value.sizes[0] = 100'000;
  }
  EXPECT_EQ(fuse_filter_gradients(trace_, at::kCPU), 0) << "large";
}

TEST_F(FilterGradientsTest, AreSwitchedByTheirOption) {
  for (const bool wanted : {true, false}) {
    trace([](const at::Tensor& x, const at::Tensor& w) { return at::conv2d(x, w, {}, 1, 1); },
          at::randn({2, 3, 9, 8}), {8, 3, 3, 3}, false);
    optimize(trace_, {"y", "0"}, {.few_channels = wanted, .device = at::kCPU});
    EXPECT_EQ(count(trace_, "tensorpack::filter_gradient"), wanted ? 1 : 0);
  }
}

TEST_F(FilterGradientsTest, OfFoldedImagesAreLeftToThose) {
  const auto image = at::randn({2, 3, 9, 8}).contiguous(at::MemoryFormat::ChannelsLast);
  trace([](const at::Tensor& x, const at::Tensor& w) { return at::conv2d(x, w, {}, 2, 1); }, image,
        {8, 3, 3, 3}, false);
  optimize(trace_, {"y", "0"}, {.device = at::kCPU});
  EXPECT_EQ(count(trace_, "tensorpack::folded_weight_gradient"), 1);
  EXPECT_EQ(count(trace_, "tensorpack::filter_gradient"), 0);
}

}  // namespace
}  // namespace tensorpack::cuda
