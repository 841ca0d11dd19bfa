// SPDX-License-Identifier: Apache-2.0
// What is made again takes no memory in between, and nothing else changes.
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/memory_use.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kAgain = "tensorpack::batch_norm_act_again";

// ---- residual networks

// Larger than the weights, as is usual.
at::Tensor images() { return at::randn({4, 8, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast); }

// Bottlenecks without their width: convolution, norm and relu twice, the second with a residual,
// which may have a norm of its own.
class Blocks {
 public:
  enum class Residual { kNone, kPlain, kNormalised };

  explicit Blocks(int count) : first_(count), second_(count), of_residual_(count) {
    for (int i = 0; i < 2 * count; ++i) {
      weights_.push_back(at::randn({8, 8, 3, 3}).mul_(0.2).set_requires_grad(true));
    }
  }

  Tensors variables() const {
    Tensors all = weights_;
    for (const std::vector<Norm>* norms : {&first_, &second_, &of_residual_}) {
      for (const Norm& norm : *norms) {
        for (const at::Tensor& variable : norm.variables()) all.push_back(variable);
      }
    }
    return all;
  }

  // A step of training, as it is fused on CUDA.
  Trace step(const std::vector<std::string>& fetches, Residual residual,
             const PassSwitches& options = {
                 .cudnn_choice = false, .side_stream = false, .device = at::kCPU}) const {
    Trace trace = trace_of({images()}, variables(), [&](const Tensors& in) -> NamedTensors {
      at::Tensor y = in[0] * 2;
      at::Tensor middle;
      for (size_t i = 0; i < first_.size(); ++i) {
        middle = at::relu(first_[i](convolution(y, weights_[2 * i])));
        const at::Tensor last = second_[i](convolution(middle, weights_[2 * i + 1]));
        if (residual == Residual::kNormalised) y = of_residual_[i](y);
        y = residual == Residual::kNone ? at::relu(last) : at::relu(last + y);
      }
      const at::Tensor cost = y.square().sum();
      const auto gradients = torch::autograd::grad({cost}, weights_);
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < weights_.size(); ++i) weights_[i].sub_(gradients[i], 1e-4);
      return {{"cost", cost}, {"middle", middle}};
    });
    for (Value& value : trace.values) value.storage_bytes *= pretended_scale_;
    cuda::optimize(trace, fetches, options);
    return trace;
  }

  // Has steps take for so many times as large what they make.
  void pretend(int64_t scale) { pretended_scale_ = scale; }

 private:
  static at::Tensor convolution(const at::Tensor& x, const at::Tensor& w) {
    return at::conv2d(x, w, {}, 1, 1).contiguous(at::MemoryFormat::ChannelsLast);
  }

  std::vector<Norm> first_, second_, of_residual_;
  Tensors weights_;
  int64_t pretended_scale_ = 1;
};

// How many backward passes of batch norm make the output again, too.
int64_t made_on_the_way(const Trace& trace) {
  constexpr size_t kKeeps = 10;
  return std::count_if(trace.nodes.begin(), trace.nodes.end(), [](const Node& node) {
    return node.op_name() == "tensorpack::batch_norm_act_backward" &&
           node.arguments[kKeeps].literal.toInt() == static_cast<int64_t>(NormKeeps::kOutput);
  });
}

using Residual = Blocks::Residual;

TEST(RecomputeTest, NormalisedImagesAreMadeAgainForTheGradientsThatReadThem) {
  const Blocks blocks(3);
  Trace trace = blocks.step({"cost"}, Residual::kNone);
  const int64_t before = MemoryUse(trace).peak();
  EXPECT_GT(recompute(trace, at::kCPU), 0);
  EXPECT_GE(made_on_the_way(trace) + count(trace, kAgain), 3);
  EXPECT_EQ(count(trace, "tensorpack::batch_norm_act"), 6);  // statistics are found once
  EXPECT_LT(MemoryUse(trace).peak(), before);
}

TEST(RecomputeTest, MostCheaplyOnTheWayOfTheGradient) {
  const Blocks blocks(3);
  Trace trace = blocks.step({"cost"}, Residual::kNone);
  recompute(trace, at::kCPU);
  EXPECT_GE(made_on_the_way(trace), 3);
  EXPECT_EQ(count(trace, kAgain), 0);
  // The gradients of weights follow, as nodes of their own.
  EXPECT_GE(count(trace, "aten::convolution_backward"), 6 + made_on_the_way(trace));
}

TEST(RecomputeTest, NoMoreThanIsAskedFor) {
  const Blocks blocks(6);
  const Trace kept = blocks.step({"cost"}, Residual::kNone);
  const int64_t before = MemoryUse(kept).peak(), enough = before - before / 10;
  Trace some = kept, all = kept;
  EXPECT_GT(recompute(some, at::kCPU, {.enough = enough}), 0);
  EXPECT_LT(made_on_the_way(some), recompute(all, at::kCPU));
  EXPECT_LE(MemoryUse(some).peak(), enough);
  EXPECT_LT(MemoryUse(all).peak(), MemoryUse(some).peak());
  Trace same = kept;
  EXPECT_EQ(recompute(same, at::kCPU, {.enough = before}), 0);
}

TEST(RecomputeTest, OnTheWayAloneIfNothingMayCostMore) {
  const Blocks blocks(6);
  const Trace kept = blocks.step({"cost"}, Residual::kPlain);
  Trace on_the_way = kept, all = kept;
  EXPECT_GT(recompute(on_the_way, at::kCPU, {.most_traffic = 1}), 0);
  EXPECT_EQ(count(on_the_way, kAgain), 0);
  recompute(all, at::kCPU);
  EXPECT_GT(count(all, kAgain), 0);
  EXPECT_LT(MemoryUse(all).peak(), MemoryUse(on_the_way).peak());
}

TEST(RecomputeTest, AStepOfMuchMemoryHoldsLessThanItsFunction) {
  Blocks blocks(6);
  const auto peak = [&](const PassSwitches& options) {
    return static_cast<double>(MemoryUse(blocks.step({"cost"}, Residual::kNone, options)).peak());
  };
  PassSwitches function = PassSwitches::none(), fused{.side_stream = false};
  fused.cudnn_choice = false;
  function.device = fused.device = at::kCPU;
  PassSwitches keeping = fused;
  keeping.recompute = Recompute::kIfNeeded;
  EXPECT_EQ(peak(fused), peak(keeping));  // a few kilobytes
  blocks.pretend(1 << 14);
  EXPECT_LE(peak(fused), kSomeShare * peak(function));
  EXPECT_GT(peak(keeping), kSomeShare * peak(function));
}

TEST(RecomputeTest, TheStepIsTheSame) {
  for (const auto residual : {Residual::kNone, Residual::kPlain, Residual::kNormalised}) {
    const Blocks blocks(3);
    const at::Tensor batch = images();
    Trace trace = blocks.step({"cost"}, residual);
    const Tensors expected = outcome_of(trace, {batch}, blocks.variables());
    ASSERT_GT(recompute(trace, at::kCPU), 0);
    cuda::expect_close(expected, outcome_of(trace, {batch}, blocks.variables()));
  }
}

TEST(RecomputeTest, AChainOfResidualsIsMadeAgainOneOfTheOther) {
  const Blocks blocks(6);
  Trace with = blocks.step({"cost"}, Residual::kPlain);
  const int64_t before = MemoryUse(with).peak();
  recompute(with, at::kCPU);
  int64_t residuals = 0;
  for (const Node& node : with.nodes) {
    if (node.op_name() == kAgain && !node.arguments[3].ids.empty()) ++residuals;
  }
  EXPECT_GE(residuals, 2);
  EXPECT_LT(MemoryUse(with).peak(), 0.8 * static_cast<double>(before));
}

TEST(RecomputeTest, AResidualIsNormalisedAgain) {
  const Blocks blocks(6);
  Trace trace = blocks.step({"cost"}, Residual::kNormalised);
  EXPECT_EQ(count(trace, "tensorpack::batch_norm_statistics"), 6);
  EXPECT_GT(recompute(trace, at::kCPU), 0);
  constexpr size_t kMeanOfResidual = 9;
  int64_t normalised = 0;
  for (const Node& node : trace.nodes) {
    if (node.op_name() == kAgain && !node.arguments[kMeanOfResidual].ids.empty()) ++normalised;
  }
  EXPECT_GE(normalised, 2);
  EXPECT_EQ(count(trace, "tensorpack::batch_norm_statistics"), 6);  // found once
}

// ---- convolutions over single pixels

// Three times from 8 channels to `wide` and back.
class Bottlenecks {
 public:
  explicit Bottlenecks(int64_t wide, int64_t kernel = 1) : padding_(kernel / 2) {
    for (int i = 0; i < 3; ++i) {
      weights_.push_back(weight(wide, 8, kernel));
      weights_.push_back(weight(8, wide, kernel));
      norms_.push_back({.gamma = at::rand({wide}).add_(0.5).set_requires_grad(true),
                        .beta = at::randn({wide}).set_requires_grad(true),
                        .mean = at::zeros({wide}),
                        .variance = at::ones({wide})});
      norms_.emplace_back();
    }
  }

  Tensors variables() const {
    Tensors all = weights_;
    for (const Norm& norm : norms_) {
      for (const at::Tensor& variable : norm.variables()) all.push_back(variable);
    }
    return all;
  }

  Trace step() const {
    Trace trace = trace_of({images()}, variables(), [&](const Tensors& in) -> NamedTensors {
      at::Tensor y = in[0];
      for (size_t i = 0; i < weights_.size(); ++i) {
        y = at::relu(norms_[i](at::conv2d(y, weights_[i], {}, 1, padding_)));
      }
      const auto gradients = torch::autograd::grad({y.square().sum()}, weights_);
      const at::NoGradGuard no_grad;
      at::Tensor sum = at::zeros({});
      for (const at::Tensor& gradient : gradients) sum = sum + gradient.square().sum();
      return {{"sum", sum}};
    });
    cuda::optimize(trace, {"sum"},
                   {.cudnn_choice = false, .side_stream = false, .device = at::kCPU});
    return trace;
  }

 private:
  static at::Tensor weight(int64_t to, int64_t from, int64_t kernel) {
    return at::randn({to, from, kernel, kernel})
        .mul_(0.2)
        .contiguous(at::MemoryFormat::ChannelsLast)
        .set_requires_grad(true);
  }

  Tensors weights_;
  std::vector<Norm> norms_;
  int64_t padding_;
};

// The channels that convolutions make, in order.
std::vector<int64_t> channels_made(const Trace& trace) {
  std::vector<int64_t> channels;
  for (const Node& node : trace.nodes) {
    if (node.op_name() != "aten::convolution") continue;
    channels.push_back(trace.values[node.results[0].ids[0]].sizes[1]);
  }
  return channels;
}

TEST(RecomputeTest, ManyChannelsAreMadeAgainOfFew) {
  const Bottlenecks bottlenecks(64);
  const at::Tensor batch = images();
  Trace trace = bottlenecks.step();
  ASSERT_THAT(channels_made(trace), testing::ElementsAre(64, 8, 64, 8, 64, 8));
  const Tensors expected = outcome_of(trace, {batch}, bottlenecks.variables());
  Trace cheap = trace;
  const int64_t before = MemoryUse(trace).peak();
  EXPECT_GT(recompute(trace, at::kCPU, {.most_traffic = 1.5}), 0);
  const std::vector<int64_t> channels = channels_made(trace);
  EXPECT_GE(std::count(channels.begin(), channels.end(), 64), 4);
  EXPECT_EQ(std::count(channels.begin(), channels.end(), 8), 3);  // costs more than it saves
  // Of six results as wide, those that convolutions make are two or three.
  EXPECT_LT(MemoryUse(trace).peak(), before - before / 5);
  cuda::expect_close(expected, outcome_of(trace, {batch}, bottlenecks.variables()));
  recompute(cheap, at::kCPU, {.most_traffic = 1});
  EXPECT_EQ(channels_made(cheap).size(), 6);
  EXPECT_GT(MemoryUse(cheap).peak(), MemoryUse(trace).peak());
}

TEST(RecomputeTest, ConvolutionsThatComputeMuchAreNotRunAgain) {
  Trace larger = Bottlenecks(64, /*kernel=*/3).step();
  recompute(larger, at::kCPU);
  EXPECT_EQ(channels_made(larger).size(), 6);
  // Over single pixels, but with more operations than bytes by far.
  const Tensors weights = {at::randn({2048, 1024, 1, 1}).set_requires_grad(true)};
  Trace many =
      trace_of({at::randn({1, 1024, 4, 4})}, weights, [&](const Tensors& in) -> NamedTensors {
        const at::Tensor wide = at::conv2d(in[0], weights[0]);
        const at::Tensor early = wide.sum();
        const at::Tensor b = at::cumsum(in[0], 0), c = at::cumsum(b, 0), d = at::cumsum(c, 0);
        return {{"y", at::stack({b, c, d, d, d, d}).sum() + early + wide.square().sum()}};
      });
  recompute(many, at::kCPU);
  EXPECT_EQ(channels_made(many).size(), 1);
}

TEST(RecomputeTest, WhatIsFetchedIsKept) {
  const Blocks blocks(2);
  Trace trace = blocks.step({"cost", "middle"}, Residual::kNone);
  recompute(trace, at::kCPU);
  const Value& middle = trace.values[trace.outputs.at("middle")];
  EXPECT_EQ(trace.nodes[middle.producer].op_name(), "tensorpack::batch_norm_act");
}

TEST(RecomputeTest, ASecondTimeGainsNothing) {
  const Blocks blocks(3);
  Trace trace = blocks.step({"cost"}, Residual::kPlain);
  recompute(trace, at::kCPU);
  const int64_t once = MemoryUse(trace).peak();
  recompute(trace, at::kCPU);
  EXPECT_EQ(MemoryUse(trace).peak(), once);
}

TEST(RecomputeTest, NothingIsHeldForASideStream) {
  const Blocks blocks(3);
  for (const Recompute again :
       {Recompute::kNever, Recompute::kIfNeeded, Recompute::kSome, Recompute::kAlways}) {
    const Trace trace =
        blocks.step({"cost"}, Residual::kPlain, {.recompute = again, .device = at::kCPU});
    EXPECT_EQ(count(trace, "tensorpack::join_side_stream") > 0, again != Recompute::kAlways);
  }
}

// ---- what may be made again

// a is held for the end, while three of its size are held for something else.
Trace with_a_peak(const std::function<at::Tensor(const at::Tensor&)>& make,
                  const std::function<void(const at::Tensor&)>& in_between = {}) {
  return trace_of({at::rand({1 << 10})}, {}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor x = at::softmax(in[0], 0);
    const at::Tensor a = make(x);
    const at::Tensor early = a.sum();
    if (in_between) in_between(x);
    const at::Tensor b = at::cumsum(in[0], 0), c = at::cumsum(b, 0), d = at::cumsum(c, 0);
    const at::Tensor sum = at::stack({b, c, d}).sum();
    return {{"y", at::dot(a, x) + early + sum}};
  });
}

TEST(RecomputeTest, PointwiseOperatorsGiveTheSameBits) {
  Trace trace = with_a_peak([](const at::Tensor& x) { return at::relu(x); });
  const Tensors batch = {at::rand({1 << 10})};
  const at::Tensor expected = run(trace, batch, "y");
  EXPECT_EQ(recompute(trace, at::kCPU), 1);
  EXPECT_EQ(count(trace, "aten::relu"), 2);
  EXPECT_TRUE(at::equal(run(trace, batch, "y"), expected));
}

TEST(RecomputeTest, SoDoFusedOnes) {
  Trace trace = with_a_peak([](const at::Tensor& x) { return at::relu(x * 0.5).tanh(); });
  const Tensors batch = {at::rand({1 << 10})};
  fuse_pointwise(trace, at::kCPU);
  const int64_t before = count(trace, "tensorpack::pointwise");
  const at::Tensor expected = run(trace, batch, "y");
  EXPECT_EQ(recompute(trace, at::kCPU), 1);
  EXPECT_EQ(count(trace, "tensorpack::pointwise"), before + 1);
  EXPECT_TRUE(at::equal(run(trace, batch, "y"), expected));
}

TEST(RecomputeTest, ExpensiveOperatorsAreNotRunAgain) {
  Trace trace = with_a_peak([](const at::Tensor& x) { return at::cumsum(x, 0); });
  const std::vector<std::string> before = operators(trace);
  EXPECT_EQ(recompute(trace, at::kCPU), 0);
  EXPECT_EQ(operators(trace), before);
}

TEST(RecomputeTest, NorAreThoseWhoseInputsWereOverwritten) {
  Trace trace = with_a_peak([](const at::Tensor& x) { return at::relu(x); },
                            [](const at::Tensor& x) { at::Tensor(x).mul_(2); });
  const std::vector<std::string> before = operators(trace);
  EXPECT_EQ(recompute(trace, at::kCPU), 0);
  EXPECT_EQ(operators(trace), before);
}

TEST(RecomputeTest, NorWhatWouldKeepItsInputsInItsPlace) {
  Trace trace = with_a_peak([](const at::Tensor& x) { return at::relu(at::cumsum(x, 0)); });
  EXPECT_EQ(recompute(trace, at::kCPU), 0);
}

TEST(RecomputeTest, IsOffUnlessMemoryIsToBeSaved) {
  const auto relus = [](const PassSwitches& options) {
    Trace trace = with_a_peak([](const at::Tensor& x) { return at::relu(x); });
    cuda::optimize(trace, {"y"}, options);
    return count(trace, "aten::relu");
  };
  EXPECT_EQ(relus({.pointwise = false, .device = at::kCPU}), 1);
  EXPECT_EQ(relus({.pointwise = false, .recompute = Recompute::kAlways, .device = at::kCPU}), 2);
}

}  // namespace
}  // namespace tensorpack::cuda
