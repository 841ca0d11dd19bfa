// SPDX-License-Identifier: Apache-2.0
// Fusion of sums over rows and of gradients that are added up, on traces of the CPU.
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <functional>

#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

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
    make_functional(trace_, at::kCPU);  // autograd may add in place
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

}  // namespace
}  // namespace tensorpack::cuda
