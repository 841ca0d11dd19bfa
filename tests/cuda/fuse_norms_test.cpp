// SPDX-License-Identifier: Apache-2.0
// Fusion of batch norm and layer norm, on traces of the CPU.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

// ---- batch norm

// Two norms, the second with the first one's input as a residual, as in a residual network.
class BatchNormFusionTest : public testing::Test {
 protected:
  void trace(const std::function<at::Tensor(const at::Tensor&)>& network) {
    trace_ = trace_of(inputs_, variables(), [&](const Tensors& in) -> NamedTensors {
      const at::Tensor cost = network(in[0] * scale_).mul(in[1]).sum();
      const auto grads = torch::autograd::grad(
          {cost}, {scale_, first_.gamma, first_.beta, second_.gamma, second_.beta}, {},
          c10::nullopt, false, /*allow_unused=*/true);
      NamedTensors named{{"cost", cost}};
      if (fetched_.defined()) named.emplace("fetched", fetched_);
      for (size_t i = 0; i < grads.size(); ++i) {
        if (grads[i].defined()) named.emplace("grad" + std::to_string(i), grads[i]);
      }
      return named;
    });
    for (const auto& [name, id] : trace_.outputs) fetches_.push_back(name);
    eliminate_dead_code(trace_, fetches_);
  }
  Tensors variables() const {
    Tensors all = first_.variables();
    for (const at::Tensor& variable : second_.variables()) all.push_back(variable);
    all.push_back(scale_);
    return all;
  }
  void expect_same_after_fusion() {
    const Tensors expected = outcome_of(trace_, inputs_, variables());
    make_functional(trace_, at::kCPU);
    fuse_batch_norm(trace_, at::kCPU);
    eliminate_dead_code(trace_, fetches_);
    expect_close(expected, outcome_of(trace_, inputs_, variables()));
    EXPECT_EQ(count(trace_, "aten::native_batch_norm"), 0);
    EXPECT_EQ(count(trace_, "aten::native_batch_norm_backward"), 0);
  }
  const Node& find(const std::string& name, int skip = 0) const {
    for (const Node& node : trace_.nodes) {
      if (node.op_name() == name && skip-- == 0) return node;
    }
    throw std::runtime_error("no " + name);
  }

  Norm first_, second_;
  at::Tensor fetched_;  // besides what is trained
  at::Tensor scale_ = at::rand({1}).add_(0.5).set_requires_grad(true);
  Tensors inputs_ = {image(), image()};
  Trace trace_;
  std::vector<std::string> fetches_;
};

constexpr size_t kResidual = 5, kRelu = 9, kOther = 1, kOutput = 3, kMask = 9, kKeep = 10,
                 kBits = 3, kMeanOfResidual = 13;
constexpr const char* kStatistics = "tensorpack::batch_norm_statistics";

TEST_F(BatchNormFusionTest, ReluBecomesPartOfIt) {
  trace([&](const at::Tensor& x) { return at::relu(first_(x)); });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, "aten::relu"), 0);
  EXPECT_EQ(count(trace_, "aten::threshold_backward"), 0);
  EXPECT_EQ(find("tensorpack::batch_norm_act_backward").arguments[kMask].literal.toInt(), 1);
}

TEST_F(BatchNormFusionTest, ReluInPlaceDoesToo) {
  trace([&](const at::Tensor& x) { return first_(x).relu_(); });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, "aten::relu_") + count(trace_, "aten::relu"), 0);
}

TEST_F(BatchNormFusionTest, ResidualBlocksAreTwoOperatorsEachWay) {
  trace([&](const at::Tensor& x) {
    const at::Tensor y = at::relu(first_(x).sin());
    return at::relu(second_(y.cos()) + y).exp();
  });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act"), 2);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act_backward"), 2);
  EXPECT_TRUE(find("tensorpack::batch_norm_act", 1).arguments[kRelu].literal.toBool());
  const Node& backward = find("tensorpack::batch_norm_act_backward");
  EXPECT_EQ(backward.arguments[kMask].literal.toInt(), 3);
  EXPECT_EQ(backward.arguments[kOutput].ids.at(0),
            find("tensorpack::batch_norm_act", 1).results[kBits].ids.at(0));
  EXPECT_EQ(backward.arguments[kKeep].literal.toInt(),
            static_cast<int64_t>(NormKeeps::kMasked));  // the residual needs it, too
}

TEST_F(BatchNormFusionTest, TheSumOfGradientsBecomesPartOfIt) {
  trace([&](const at::Tensor& x) {
    const at::Tensor y = at::relu(first_(x));
    return at::relu(second_(y.sin()) + y);
  });
  expect_same_after_fusion();
  const Node& backward = find("tensorpack::batch_norm_act_backward", 1);
  EXPECT_NE(backward.arguments[kOther].ids.at(0), kNoValue);
  EXPECT_EQ(count(trace_, "aten::add.Tensor") + count(trace_, "aten::add_.Tensor"), 0);
}

TEST_F(BatchNormFusionTest, TwoThatAreAddedNormaliseInOne) {
  trace([&](const at::Tensor& x) { return at::relu(first_(x.sin()) + second_(x.cos())); });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, "aten::relu"), 0);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act"), 1);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act_backward"), 2);
  const Node& statistics = find(kStatistics);
  const Node& both = find("tensorpack::batch_norm_act");
  EXPECT_EQ(both.arguments[kResidual].ids.at(0), statistics.arguments[0].ids.at(0));
  EXPECT_EQ(both.arguments[kMeanOfResidual].ids.at(0), statistics.results[0].ids.at(0));
}

TEST_F(BatchNormFusionTest, ANormThatIsReadElsewhereIsStillWritten) {
  trace([&](const at::Tensor& x) {
    const at::Tensor shortcut = second_(x.cos());
    return at::relu(first_(x.sin()) + shortcut) + shortcut.exp();
  });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, kStatistics), 0);
  EXPECT_EQ(count(trace_, "aten::relu"), 0);
}

TEST_F(BatchNormFusionTest, ANormThatIsFetchedIsStillWritten) {
  trace([&](const at::Tensor& x) {
    fetched_ = second_(x.cos());
    return at::relu(first_(x.sin()) + fetched_);
  });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, kStatistics), 0);
  EXPECT_EQ(count(trace_, "aten::relu"), 0);
}

TEST_F(BatchNormFusionTest, ANormWithReluIsStillWritten) {
  trace(
      [&](const at::Tensor& x) { return at::relu(first_(x.sin()) + at::relu(second_(x.cos()))); });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, kStatistics), 0);
}

TEST_F(BatchNormFusionTest, ANormWhoseBiasIsUpdatedInBetweenIsStillWritten) {
  trace([&](const at::Tensor& x) {
    const at::Tensor shortcut = second_(x.cos());
    {
      const at::NoGradGuard no_grad;
      second_.beta.detach().add_(1);
    }
    return at::relu(first_(x.sin()) + shortcut);
  });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, kStatistics), 0);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act"), 2);
}

// Without a backward pass there is one reader, which reads it twice.
TEST_F(BatchNormFusionTest, ANormOfANormToWhichThatIsAddedIsStillWritten) {
  trace_ = trace_of(inputs_, variables(), [&](const Tensors& in) -> NamedTensors {
    const at::NoGradGuard no_grad;
    const at::Tensor y = first_(in[0]);
    return {{"y", at::relu(second_(y) + y)}};
  });
  fetches_ = {"y"};
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, kStatistics), 0);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act"), 2);
}

TEST_F(BatchNormFusionTest, WhatIsReadElsewhereIsNotTakenIn) {
  trace([&](const at::Tensor& x) {
    const at::Tensor y = first_(x);
    return at::relu(y) + second_(y * 2);
  });
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, "aten::relu"), 1);
}

TEST_F(BatchNormFusionTest, AnUpdateOfTheBiasInBetweenIsSeen) {
  trace([&](const at::Tensor& x) {
    const at::Tensor y = at::relu(first_(x));
    const at::NoGradGuard no_grad;
    first_.beta.detach().add_(1);
    const at::AutoGradMode with_grad(true);
    return y;
  });
  expect_same_after_fusion();
  EXPECT_EQ(find("tensorpack::batch_norm_act_backward").arguments[kMask].literal.toInt(), 3);
}

// ---- max pooling behind batch norm and relu

class NormPoolFusionTest : public testing::Test {
 protected:
  using Network = std::function<at::Tensor(const at::Tensor& pooled)>;

  // `unpooled` are readers of what is pooled.
  void trace(const Network& network, const Network& unpooled = {}) {
    trace_ = trace_of(input_, variables(), [&](const Tensors& in) -> NamedTensors {
      const at::Tensor normalized = at::relu(norm_(in[0] * scale_));
      at::Tensor cost = network(at::max_pool2d(normalized, {3, 3}, {2, 2}, {1, 1})).sum();
      if (unpooled) cost = cost + unpooled(normalized).sum();
      const auto grads = torch::autograd::grad({cost}, {scale_, norm_.gamma, norm_.beta});
      return {{"cost", cost}, {"scale", grads[0]}, {"gamma", grads[1]}, {"beta", grads[2]}};
    });
    tensorpack::optimize(trace_, fetches_);
    make_functional(trace_, at::kCPU);
    fuse_batch_norm(trace_, at::kCPU);
  }
  Tensors variables() const {
    Tensors all = norm_.variables();
    all.push_back(scale_);
    return all;
  }
  void expect_same_after_fusion(int poolings) {
    const Tensors expected = outcome_of(trace_, input_, variables());
    EXPECT_EQ(fuse_norm_pool(trace_, at::kCPU), poolings);
    eliminate_dead_code(trace_, fetches_);
    expect_close(expected, outcome_of(trace_, input_, variables()));
    EXPECT_EQ(count(trace_, "tensorpack::batch_norm_pool"), poolings);
    EXPECT_EQ(count(trace_, "tensorpack::batch_norm_pool_backward"), poolings);
  }

  Norm norm_;
  at::Tensor scale_ = at::rand({1}).add_(0.5).set_requires_grad(true);
  Tensors input_ = {at::randn({2, 8, 7, 6}).contiguous(at::MemoryFormat::ChannelsLast)};
  std::vector<std::string> fetches_ = {"beta", "cost", "gamma", "scale"};
  Trace trace_;
};

TEST_F(NormPoolFusionTest, WhatPoolingReadsIsNeverThere) {
  trace([](const at::Tensor& pooled) { return pooled.square(); });
  expect_same_after_fusion(1);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act"), 0);
  EXPECT_EQ(count(trace_, "tensorpack::batch_norm_act_backward"), 0);
  EXPECT_EQ(count(trace_, "aten::max_pool2d_with_indices"), 0);
  EXPECT_EQ(count(trace_, "aten::max_pool2d_with_indices_backward"), 0);
}

TEST_F(NormPoolFusionTest, TheSumOfGradientsBecomesPartOfIt) {
  trace([](const at::Tensor& pooled) { return pooled.sin() * at::sigmoid(pooled); });
  const int64_t sums = count(trace_, "aten::add.Tensor");
  expect_same_after_fusion(1);
  EXPECT_EQ(count(trace_, "aten::add.Tensor"), sums - 1);
}

TEST_F(NormPoolFusionTest, WhatIsReadElsewhereIsStillWritten) {
  trace([](const at::Tensor& pooled) { return pooled.square(); },
        [](const at::Tensor& normalized) { return normalized.exp(); });
  expect_same_after_fusion(0);
}

TEST_F(NormPoolFusionTest, PoolingInBothDirectionsOrInNone) {
  // Two backward passes go through it.
  trace_ = trace_of(input_, variables(), [&](const Tensors& in) -> NamedTensors {
    const at::Tensor pooled = at::max_pool2d(at::relu(norm_(in[0] * scale_)), {2, 2});
    const auto first = torch::autograd::grad({pooled.sum()}, {scale_}, {}, true);
    const auto second = torch::autograd::grad({pooled.square().sum()}, {scale_});
    return {{"first", first[0]}, {"second", second[0]}};
  });
  fetches_ = {"first", "second"};
  tensorpack::optimize(trace_, fetches_);
  make_functional(trace_, at::kCPU);
  fuse_batch_norm(trace_, at::kCPU);
  expect_same_after_fusion(0);
}

TEST_F(NormPoolFusionTest, ItHasASwitch) {
  for (const bool norm_pool : {true, false}) {
    trace([](const at::Tensor& pooled) { return pooled.square(); });
    cuda::optimize(trace_, fetches_, {.norm_pool = norm_pool, .device = at::kCPU});
    EXPECT_EQ(count(trace_, "tensorpack::batch_norm_pool"), norm_pool ? 1 : 0);
    EXPECT_EQ(count(trace_, "tensorpack::max_pool"), norm_pool ? 0 : 1);
  }
}

TEST(BatchNormFusionLimitsTest, OtherLayoutsAndPredictionAreLeftAlone) {
  const Norm norm;
  const at::Tensor contiguous = at::randn({2, 8, 3, 3});
  Trace trace =
      trace_of({contiguous, image()}, norm.variables(), [&](const Tensors& in) -> NamedTensors {
        const at::NoGradGuard no_grad;
        return {{"a", norm(in[0])},
                {"b", at::batch_norm(in[1], norm.gamma, norm.beta, norm.mean, norm.variance, false,
                                     0.1, 1e-5, false)}};
      });
  const std::vector<std::string> as_recorded = operators(trace);
  EXPECT_EQ(fuse_batch_norm(trace, at::kCPU), 0);
  EXPECT_EQ(operators(trace), as_recorded);
}

// ---- layer norm

// A stream in float, layers in bfloat16, as in a Transformer.
class LayerNormFusionTest : public testing::Test {
 protected:
  at::Tensor norm(const at::Tensor& x) const {
    return at::layer_norm(x, {8}, gamma_, beta_, 1e-5, false);
  }
  at::Tensor layer(const at::Tensor& x) const {
    return at::mm(x.reshape({-1, 8}).to(at::kBFloat16), w_.to(at::kBFloat16)).view(x.sizes());
  }
  void trace(const std::function<at::Tensor(const at::Tensor&)>& network) {
    trace_ = trace_of(inputs_, variables_, [&](const Tensors& in) -> NamedTensors {
      const at::Tensor cost = network(in[0] * scale_).to(at::kFloat).square().sum();
      const auto grads = torch::autograd::grad({cost}, {scale_, gamma_, beta_, w_});
      return {{"cost", cost}, {"scale", grads[0]}, {"gamma", grads[1]}, {"w", grads[3]}};
    });
    tensorpack::optimize(trace_, fetches_);
  }
  void expect_same_after_fusion() {
    const Tensors expected = outcome_of(trace_, inputs_, variables_);
    make_functional(trace_, at::kCPU);
    fuse_layer_norm(trace_, at::kCPU);
    eliminate_dead_code(trace_, fetches_);
    const Tensors values = outcome_of(trace_, inputs_, variables_);
    ASSERT_EQ(expected.size(), values.size());
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(at::allclose(expected[i], values[i], 2e-2, 1e-2)) << i;
    }
    EXPECT_EQ(count(trace_, "aten::native_layer_norm"), 0);
    EXPECT_EQ(count(trace_, "aten::native_layer_norm_backward"), 0);
  }

  at::Tensor gamma_ = at::rand({8}).add_(0.5).set_requires_grad(true);
  at::Tensor beta_ = at::randn({8}).set_requires_grad(true);
  at::Tensor w_ = at::randn({8, 8}).set_requires_grad(true);
  at::Tensor scale_ = at::ones({1}).set_requires_grad(true);
  Tensors variables_ = {gamma_, beta_, w_, scale_};
  Tensors inputs_ = {at::randn({2, 3, 8})};
  std::vector<std::string> fetches_ = {"cost", "gamma", "scale", "w"};
  Trace trace_;
};

TEST_F(LayerNormFusionTest, CastsBecomePartOfIt) {
  trace([&](const at::Tensor& x) { return layer(norm(x)); });
  expect_same_after_fusion();
  // The weight and its gradient, and the cost's.
  EXPECT_LE(count(trace_, "aten::_to_copy"), 4);
  EXPECT_EQ(count(trace_, "tensorpack::layer_norm"), 1);
  EXPECT_EQ(count(trace_, "tensorpack::layer_norm_backward"), 1);
}

TEST_F(LayerNormFusionTest, ResidualsAndTheirGradientsBecomePartOfIt) {
  trace([&](const at::Tensor& x) {
    const at::Tensor y = x + layer(x);
    return y + layer(norm(y));
  });
  const auto additions = [&] {
    return count(trace_, "aten::add.Tensor") + count(trace_, "aten::add_.Tensor");
  };
  const int64_t before = additions();
  expect_same_after_fusion();
  EXPECT_EQ(additions(), before - 2);
}

// Layers with a bias, whose gradient is a sum over the rows of what layer norm's backward gives.
class LayerNormSumTest : public LayerNormFusionTest {
 protected:
  // An addition to a value before its sum, by somebody who sees it.
  enum class Write { kNone, kBefore, kAfter };

  static constexpr const char* kBackward = "tensorpack::layer_norm_backward";
  static constexpr const char* kSum = "aten::sum.dim_IntList";

  // layer_norm_backward's gradient, cast or not, as the layer before it takes it.
  void trace_backward(c10::ScalarType type, bool keep_rows, Write write = Write::kNone) {
    inputs_ = {at::randn({2, 3, 8}), at::randn({2, 3, 8}), at::randn({2, 3, 8})};
    trace_ = trace_of(inputs_, {}, [&](const Tensors& in) -> NamedTensors {
      const at::NoGradGuard no_grad;
      const auto [y, mean, rstd] = at::native_layer_norm(in[1], {8}, {}, {}, 1e-5);
      const auto [dx, dw, db] = at::native_layer_norm_backward(in[0] * 2, in[1], {8}, mean, rstd,
                                                               {}, {}, {true, false, false});
      const at::Tensor all = (dx + in[2]).to(type);
      const at::Tensor matrix = all.view({-1, 8});
      const at::Tensor product = at::mm(matrix, matrix.t());
      if (write == Write::kBefore) matrix.select(0, 0).add_(1);
      const at::Tensor sum = matrix.sum(0, keep_rows);
      if (write == Write::kAfter) matrix.select(0, 0).add_(1);
      return {{"product", product}, {"sum", sum.view({8})}, {"all", all}};
    });
    fetches_ = {"product", "sum", "all"};
    variables_ = {};
    tensorpack::optimize(trace_, fetches_);
  }
};

TEST_F(LayerNormSumTest, SumsOfWhatItGivesBecomePartOfIt) {
  for (const auto type : {at::kFloat, at::kBFloat16}) {
    for (const bool keep_rows : {false, true}) {
      trace_backward(type, keep_rows);
      expect_same_after_fusion();
      EXPECT_EQ(count(trace_, kBackward), 1);
      EXPECT_EQ(count(trace_, kSum), 0);
    }
  }
}

TEST_F(LayerNormSumTest, SumsOfWhatIsWrittenStay) {
  for (const auto write : {Write::kBefore, Write::kAfter}) {
    trace_backward(at::kBFloat16, true, write);
    expect_same_after_fusion();
    EXPECT_EQ(count(trace_, kSum), 1);
  }
}

TEST_F(LayerNormSumTest, OtherSumsStay) {
  const auto expect_sums = [&](int64_t expected, const auto& sum_of) {
    inputs_ = {at::randn({2, 3, 8}), at::randn({2, 3, 8})};
    trace_ = trace_of(inputs_, {}, [&](const Tensors& in) -> NamedTensors {
      const at::NoGradGuard no_grad;
      const auto [y, mean, rstd] = at::native_layer_norm(in[1], {8}, {}, {}, 1e-5);
      const auto [dx, dw, db] = at::native_layer_norm_backward(in[0] * 2, in[1], {8}, mean, rstd,
                                                               {}, {}, {true, false, false});
      const at::Tensor copy = dx.to(at::kBFloat16);
      return {{"dx", dx}, {"copy", copy.exp()}, {"sum", sum_of(dx, copy)}};
    });
    fetches_ = {"dx", "copy", "sum"};
    variables_ = {};
    tensorpack::optimize(trace_, fetches_);
    expect_same_after_fusion();
    EXPECT_EQ(count(trace_, kSum), expected);
  };
  expect_sums(0, [](const at::Tensor&, const at::Tensor& copy) {
    return copy.view({6, 8}).sum(0);
  });
  expect_sums(1, [](const at::Tensor&, const at::Tensor& copy) { return copy.sum(0); });
  expect_sums(1, [](const at::Tensor&, const at::Tensor& copy) {
    return copy.view({6, 8}).sum(1);
  });
  expect_sums(1, [](const at::Tensor&, const at::Tensor& copy) {
    return copy.view({12, 4}).sum(0);  // other columns
  });
  expect_sums(1, [](const at::Tensor&, const at::Tensor& copy) {
    return copy.view({6, 8}).narrow(0, 0, 5).sum(0);
  });
  expect_sums(1, [](const at::Tensor& dx, const at::Tensor&) {
    return dx.view({6, 8}).sum(0);  // not of the copy
  });
  expect_sums(1, [](const at::Tensor&, const at::Tensor& copy) {  // the other is a column_sum's
    const at::Tensor matrix = copy.view({6, 8});
    return at::cat({matrix.sum(0), matrix.sum(0, true).view({8})});
  });
}

TEST_F(LayerNormSumTest, RowsThatAreTooLongForItAreSummedAlone) {
  inputs_ = {at::randn({3, 1025}), at::randn({3, 1025})};
  trace_ = trace_of(inputs_, {}, [&](const Tensors& in) -> NamedTensors {
    const at::NoGradGuard no_grad;
    const auto [y, mean, rstd] = at::native_layer_norm(in[1], {1025}, {}, {}, 1e-5);
    const auto [dx, dw, db] = at::native_layer_norm_backward(in[0], in[1], {1025}, mean, rstd, {},
                                                             {}, {true, false, false});
    return {{"sum", dx.sum(0)}};
  });
  fetches_ = {"sum"};
  variables_ = {};
  expect_same_after_fusion();
  EXPECT_EQ(count(trace_, kSum), 1);
}

TEST_F(LayerNormFusionTest, WhatIsReadInFloatIsWrittenInFloat) {
  trace([&](const at::Tensor& x) {
    const at::Tensor y = norm(x);
    return layer(y) + y;
  });
  expect_same_after_fusion();
}

}  // namespace
}  // namespace tensorpack::cuda
