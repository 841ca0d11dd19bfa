// SPDX-License-Identifier: Apache-2.0
// Fusion of losses, biases, sums and pooling, on traces of the CPU.
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

// ---- sums

TEST(ColumnSumFusionTest, LargeSumsOverRowsAreFound) {
  const Tensors input = {at::randn({1024, 300})};
  Trace trace = trace_of(input, {}, [](const Tensors& in) -> NamedTensors {
    return {{"a", in[0].sum({0}, true)},
            {"b", in[0].sum({0})},
            {"c", in[0].sum({1})},
            {"d", in[0].narrow(0, 0, 2).sum({0})}};
  });
  const Tensors expected = outcome_of(trace, input, {});
  EXPECT_EQ(fuse_column_sums(trace, at::kCPU), 2);
  expect_close(expected, outcome_of(trace, input, {}));
}

// The gradients of queries, keys and values, each [N, heads, T, features] in the memory of
// [N, T, heads, features], as libtorch's fused attention gives them.
class ConcatSumFusionTest : public testing::Test {
 protected:
  using Gradients = std::function<Tensors(const Tensors&)>;
  using Result = std::function<NamedTensors(const at::Tensor&)>;

  // What goes on with them: the gradients of the input, the weight and the bias.
  NamedTensors go_on(const at::Tensor& all, bool keep_rows = true) const {
    const at::Tensor matrix = all.view({-1, all.size(-1)});
    const at::Tensor w = w_.narrow(0, 0, all.size(-1));
    return {{"input", at::mm(matrix, w)},
            {"weight", at::mm(matrix.t(), at::mm(matrix, w))},
            {"bias", matrix.sum(0, keep_rows).view({-1})}};
  }
  static at::Tensor merge_heads(const at::Tensor& x) {
    return x.transpose(1, 2).reshape({x.size(0), x.size(2), -1});
  }
  void trace(const Gradients& gradients, const Result& result) {
    trace_ = trace_of(inputs_, {w_}, [&](const Tensors& in) -> NamedTensors {
      const at::NoGradGuard no_grad;
      Tensors heads;
      for (const at::Tensor& x : in) heads.push_back((x * 2).transpose(1, 2));
      return result(at::cat(gradients(heads), 2));
    });
    std::vector<std::string> fetches;
    for (const auto& [name, id] : trace_.outputs) fetches.push_back(name);
    tensorpack::optimize(trace_, fetches);
  }
  void trace() {
    trace(merged, [&](const at::Tensor& all) { return go_on(all); });
  }
  void expect_fused(int expected) {
    const Tensors before = outcome_of(trace_, inputs_, {w_});
    const int64_t concatenations = count(trace_, "aten::cat");
    fuse_column_sums(trace_, at::kCPU);
    expect_close(before, outcome_of(trace_, inputs_, {w_}));
    EXPECT_EQ(count(trace_, "tensorpack::concat_sum"), expected);
    EXPECT_EQ(count(trace_, "aten::cat"), concatenations - expected);
  }

  static Tensors merged(const Tensors& heads) {
    Tensors parts;
    for (const at::Tensor& x : heads) parts.push_back(merge_heads(x));
    return parts;
  }
  const Result on_ = [this](const at::Tensor& all) { return go_on(all); };

  at::Tensor w_ = at::randn({2304, 8}).mul_(0.01);
  Tensors inputs_ = {at::randn({2, 64, 4, 64}), at::randn({2, 64, 4, 64}),
                     at::randn({2, 64, 4, 64})};
  Trace trace_;
};

TEST_F(ConcatSumFusionTest, ConcatenationAndSumAreOneOperator) {
  for (const bool keep_rows : {true, false}) {
    trace(merged, [&](const at::Tensor& all) { return go_on(all, keep_rows); });
    expect_fused(1);
    EXPECT_EQ(count(trace_, "aten::sum.dim_IntList"), 0);
    EXPECT_EQ(count(trace_, "tensorpack::column_sum"), 0);
  }
}

TEST_F(ConcatSumFusionTest, PartsMayBeColumnsOfWiderMatrices) {
  trace(
      [](const Tensors& heads) {
        const at::Tensor wide = merge_heads(heads[0]).sin();
        return Tensors{wide.narrow(2, 0, 160), merge_heads(heads[1]), wide.narrow(2, 160, 96)};
      },
      on_);
  expect_fused(1);
}

TEST_F(ConcatSumFusionTest, APartThatIsWrittenAfterwardsIsReadBefore) {
  at::Tensor part;
  trace(
      [&](const Tensors& heads) {
        Tensors parts = merged(heads);
        part = parts[1];
        return parts;
      },
      [&](const at::Tensor& all) {
        part.add_(1);
        NamedTensors named = go_on(all);
        named.emplace("part", part.sin());
        return named;
      });
  expect_fused(1);
}

TEST_F(ConcatSumFusionTest, OneSumOfTwoIsTaken) {
  trace(merged, [&](const at::Tensor& all) {
    NamedTensors named = go_on(all);
    named.emplace("again", all.view({-1, all.size(2)}).sum(0, false, at::kDouble));
    named.emplace("once more", all.view({-1, all.size(2)}).sum(0));
    return named;
  });
  expect_fused(1);
  EXPECT_EQ(count(trace_, "tensorpack::column_sum"), 1);
}

TEST_F(ConcatSumFusionTest, OthersStayAsTheyAre) {
  // Written before the sum, or afterwards.
  trace(merged, [&](const at::Tensor& all) {
    const at::Tensor product = at::mm(all.view({-1, 768}), w_.narrow(0, 0, 768));
    all.select(0, 0).add_(1);
    NamedTensors named = go_on(all);
    named.emplace("before", product);
    return named;
  });
  expect_fused(0);
  trace(merged, [&](const at::Tensor& all) {
    NamedTensors named = go_on(all);
    all.select(0, 0).add_(1);
    named.emplace("after", all.sin());
    return named;
  });
  expect_fused(0);
  // Elements that are no neighbours, as the gradients of keys have them on the CPU.
  trace(
      [](const Tensors& heads) {
        Tensors parts = merged(heads);
        parts[1] = parts[1].transpose(1, 2).contiguous().transpose(1, 2);
        return parts;
      },
      on_);
  expect_fused(0);
  // Rows that are not all as far apart.
  trace(
      [](const Tensors& heads) {
        Tensors parts;
        for (const at::Tensor& x : heads) parts.push_back(merge_heads(x).narrow(1, 0, 63));
        return parts;
      },
      on_);
  expect_fused(0);
  // Of several types.
  trace(
      [](const Tensors& heads) {
        Tensors parts = merged(heads);
        parts[2] = parts[2].to(at::kBFloat16);
        return parts;
      },
      on_);
  expect_fused(0);
  // More parts than a kernel takes.
  trace(
      [](const Tensors& heads) {
        Tensors parts;
        for (int i = 0; i < 9; ++i) parts.push_back(merge_heads(heads[i % 3]));
        return parts;
      },
      on_);
  expect_fused(0);
  // Below each other.
  trace(merged, [&](const at::Tensor& all) {
    const at::Tensor sin = all.sin();
    return go_on(at::cat({sin, sin}, 1));
  });
  EXPECT_EQ(count(trace_, "aten::cat"), 2);
  expect_fused(0);
  // Without such a sum.
  trace(merged, [&](const at::Tensor& all) -> NamedTensors {
    return {{"sum", all.sum(0)}, {"rows", all.view({-1, 768}).sum(1)}};
  });
  expect_fused(0);
  // Small ones.
  for (at::Tensor& input : inputs_) input = at::randn({2, 8, 4, 64});
  trace();
  expect_fused(0);
}

TEST_F(ConcatSumFusionTest, IsSwitchedWithTheSums) {
  for (const bool is_on : {true, false}) {
    trace();
    cuda::optimize(trace_, {"input", "weight", "bias"}, {.column_sums = is_on, .device = at::kCPU});
    EXPECT_EQ(count(trace_, "tensorpack::concat_sum"), is_on ? 1 : 0);
  }
}

// So that it need not wait for a sum that has left the path.
TEST_F(ConcatSumFusionTest, CountsInAConstantOfItsOwn) {
  trace(merged, [&](const at::Tensor& all) {
    NamedTensors named = go_on(all);
    named.emplace("other", all.sin().view({-1, all.size(2)}).sum(0));
    return named;
  });
  fuse_column_sums(trace_, at::kCPU);
  std::vector<ValueId> counters;
  for (const Node& node : trace_.nodes) {
    const std::string name = node.op_name();
    if (name == "tensorpack::concat_sum" || name == "tensorpack::column_sum") {
      counters.push_back(node.arguments[1].ids.at(0));
    }
  }
  ASSERT_EQ(counters.size(), 2U);
  EXPECT_NE(counters[0], counters[1]);
}

// ---- words

// Vectors of words that serve as the last layer's weights, too, in mixed precision.
class EmbeddingGradientFusionTest : public testing::Test {
 protected:
  using Other = std::function<at::Tensor(const at::Tensor& of_words, const at::Tensor& product)>;

  static constexpr const char* kFused = "tensorpack::embedding_gradient";

  void trace_training(int64_t padding_idx = -1, bool scale_grad_by_freq = false) {
    w_.set_requires_grad(true);
    trace_ = trace_of(inputs_, {w_}, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor x = at::embedding(w_, in[0], padding_idx, scale_grad_by_freq);
      const at::Tensor y =
          at::mm(x.flatten(0, 1).to(at::kBFloat16), w_.to(at::kBFloat16).t()).to(at::kFloat);
      return {{"grad", torch::autograd::grad({y.square().mean()}, {w_})[0]}};
    });
    tensorpack::optimize(trace_, {"grad"});
  }
  // What is made of the gradient of the words and a product of matrices in bfloat16.
  void trace(const Other& result) {
    trace_ = trace_of(inputs_, {w_}, [&](const Tensors& in) -> NamedTensors {
      const at::NoGradGuard no_grad;
      const at::Tensor grad = at::embedding(w_, in[0]).sin();
      const at::Tensor of_words = at::embedding_dense_backward(grad, in[0], 1024, -1, false);
      const at::Tensor half = w_.to(at::kBFloat16);
      return {{"grad", result(of_words, at::mm(half, half.narrow(0, 0, 64)))}};
    });
    tensorpack::optimize(trace_, {"grad"});
  }
  void expect_fused(int expected) {
    const Tensors before = outcome_of(trace_, inputs_, {w_});
    EXPECT_EQ(fuse_embedding_gradient(trace_, at::kCPU), expected);
    eliminate_dead_code(trace_, {"grad"});
    expect_close(before, outcome_of(trace_, inputs_, {w_}));
    EXPECT_EQ(count(trace_, kFused), expected);
  }

  at::Tensor w_ = at::randn({1024, 64});
  Tensors inputs_ = {at::randint(100, {3, 50}, at::kLong)};
  Trace trace_;
};

TEST_F(EmbeddingGradientFusionTest, ReadsTheGradientOfTheLastLayer) {
  for (const int64_t padding_idx : {-1, 7}) {
    trace_training(padding_idx);
    const int64_t casts = count(trace_, "aten::_to_copy");
    expect_fused(1);
    EXPECT_EQ(count(trace_, "aten::embedding_dense_backward"), 0);
    EXPECT_EQ(count(trace_, "aten::add.Tensor"), 0);
    EXPECT_EQ(count(trace_, "aten::_to_copy"), casts - 1);
  }
}

TEST_F(EmbeddingGradientFusionTest, EitherMayBeAddedToTheOtherInAnyType) {
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    return of_words + product.to(at::kFloat);
  });
  expect_fused(1);
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    return product.to(at::kFloat).sin() + of_words;
  });
  expect_fused(1);
  trace([](const at::Tensor& of_words, const at::Tensor& product) { return of_words + product; });
  expect_fused(1);
  trace([](const at::Tensor& of_words, const at::Tensor& product) {  // the cast is for others, too
    const at::Tensor cast = product.to(at::kFloat);
    return (cast + of_words).sin() + cast;
  });
  expect_fused(1);
  EXPECT_EQ(count(trace_, "aten::_to_copy"), 2);
}

TEST_F(EmbeddingGradientFusionTest, OthersStayAsTheyAre) {
  trace_training(-1, /*scale_grad_by_freq=*/true);
  expect_fused(0);
  // Read by others, or written before.
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    return (product.to(at::kFloat) + of_words).mul(of_words);
  });
  expect_fused(0);
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    const at::Tensor cast = product.to(at::kFloat);
    of_words.narrow(0, 0, 3).add_(1);
    return cast + of_words;
  });
  expect_fused(0);
  // Not added, not as it is, or to something of another size.
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    return product.to(at::kFloat) * of_words;
  });
  expect_fused(0);
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    return at::add(product.to(at::kFloat), of_words, 2);
  });
  expect_fused(0);
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    return product.to(at::kFloat)[0] + of_words;
  });
  expect_fused(0);
  trace([](const at::Tensor& of_words, const at::Tensor&) { return of_words + of_words; });
  expect_fused(0);
  // Words that are there many times.
  inputs_ = {at::randint(100, {3, 500}, at::kLong)};
  trace_training();
  expect_fused(0);
  // Few words.
  inputs_ = {at::randint(100, {3, 5}, at::kLong)};
  w_ = at::randn({1000, 64});
  trace_training();
  expect_fused(0);
}

// A product that is written after it was cast is not read later.
TEST_F(EmbeddingGradientFusionTest, WhatIsWrittenInBetweenIsReadBefore) {
  trace([](const at::Tensor& of_words, const at::Tensor& product) {
    const at::Tensor cast = product.to(at::kFloat);
    const at::Tensor written = of_words.sin();
    product.add_(1);
    return cast +
           at::embedding_dense_backward(written.narrow(0, 0, 150).add(product.narrow(0, 0, 150)),
                                        at::arange(150).to(of_words.device()), 1024, -1, false);
  });
  expect_fused(1);
}

TEST_F(EmbeddingGradientFusionTest, IsSwitchedWithPointwiseOperators) {
  for (const bool is_on : {true, false}) {
    trace_training();
    cuda::optimize(trace_, {"grad"}, {.pointwise = is_on, .device = at::kCPU});
    EXPECT_EQ(count(trace_, kFused), is_on ? 1 : 0);
  }
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
