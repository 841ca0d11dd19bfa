// SPDX-License-Identifier: Apache-2.0
// Chains of pointwise operators: formulas, kernels on the host, and the pass that finds them.
#include "tensorpack/cuda/kernels/pointwise.h"

#include <ATen/core/grad_mode.h>
#include <gmock/gmock.h>
#include <torch/autograd.h>

#include <random>

#include "tensorpack/cuda/kernels/formula.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/utils/error.h"
#include "tests/cuda/fusion.h"
#include "tests/cuda/host_device.h"
#include "tests/cuda/kernel_cases.h"

namespace tensorpack::cuda {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// ---- kernels

TEST(PointwiseKernelTest, RandomChainsGiveWhatTheUnfusedOperatorsGive) {
  const HostLauncher launcher;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    SCOPED_TRACE(seed);
    expect_pointwise_as_unfused(seed, launcher, at::kCPU);
  }
}

TEST(PointwiseKernelTest, EveryOperatorGivesWhatLibtorchsGives) {
  expect_every_step_as_unfused(c10::kFloat, HostLauncher(), at::kCPU);
}

TEST(PointwiseKernelTest, SumsOverRowsGoWithTheChain) {
  const HostLauncher launcher;
  expect_pointwise_sum_as_unfused({37, 24}, c10::kFloat, launcher, at::kCPU);
  expect_pointwise_sum_as_unfused({3, 7, 5, 5}, c10::kBFloat16, launcher, at::kCPU);
}

TEST(PointwiseKernelTest, NotANumberAndInfinityStay) {
  const at::Tensor x = at::tensor({NAN, INFINITY, -INFINITY, 0.f});
  const Formula formula = parse_formula(
      "relu %0 : float ; clamp %0 -1 inf : float ; maximum %0 0 : float -> %1 %2 %3", 1);
  const DenseLayout layout{{4}, {1}};
  const auto expected = pointwise_unfused({x}, formula, layout);
  const auto values = pointwise({x}, formula, layout, HostLauncher());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(expected[i], values[i], 0, 0, /*equal_nan=*/true)) << values[i];
  }
}

TEST(PointwiseKernelTest, NothingIsDoneForNoElements) {
  const Formula formula = parse_formula("relu %0 : float -> %1", 1);
  const auto values = pointwise({at::empty({0, 3})}, formula, {{0, 3}, {3, 1}}, HostLauncher());
  EXPECT_EQ(values[0].numel(), 0);
}

// ---- formulas

TEST(FormulaTest, TextIsReadAsItWasWritten) {
  const std::string text =
      "mul %0 -inf : bf16 ; add %1 %2 0.1 : bf16 ; gt %3 1e-05 : boolean -> %3 %4";
  EXPECT_EQ(to_text(parse_formula(text, 2)), text);
}

TEST(FormulaTest, WhatIsNoFormulaIsAnError) {
  for (const char* text :
       {"", "relu %0", "relu %0 : float", "relu %1 : float -> %1", "nothing %0 : float -> %1",
        "relu %0 %0 : float -> %1", "relu %0 : double -> %1", "relu x : float -> %1",
        "relu %0 : float -> %2"}) {
    try {
      parse_formula(text, 1);
      FAIL() << text;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is no formula of 1 input"));
    }
  }
}

// ---- the pass

// Random expressions of two tensors of one shape and a row that is broadcast.
at::Tensor random_expression(std::mt19937& engine, const Tensors& in) {
  at::Tensor value = in[0];
  for (int i = 0; i < 6; ++i) {
    switch (engine() % 10) {
      case 0:
        value = torch::relu(value);
        break;
      case 1:
        value = torch::sigmoid(value) * 2 - 1;
        break;
      case 2:
        value = torch::tanh(value + in[1]);
        break;
      case 3:
        value = torch::gelu(value);
        break;
      case 4:
        value = value * in[1];
        break;
      case 5:
        value = torch::leaky_relu(value + in[2], 0.2);
        break;
      case 6:
        value = torch::silu(value) / 3;
        break;
      case 7:
        value = torch::clamp(value, -1, 1).exp();
        break;
      case 8:
        value = torch::where(in[1] > 0, value, value.neg());
        break;
      default:
        value = (value * value + 1).sqrt().contiguous(at::MemoryFormat::ChannelsLast);
    }
  }
  return value;
}

TEST(PointwiseFusionTest, RandomChainsAndTheirGradientsStayTheSame) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    at::manual_seed(seed);
    const at::Tensor scale = at::rand({1, 8, 1, 1}).add_(0.5).set_requires_grad(true);
    const Tensors inputs = {image(), at::randn({2, 8, 3, 3}), at::randn({3, 1})};
    Trace trace = trace_of(inputs, {scale}, [&](const Tensors& in) -> NamedTensors {
      std::mt19937 engine(seed);
      const at::Tensor y = random_expression(engine, {in[0] * scale, in[1], in[2]});
      return {{"y", y}, {"grad", torch::autograd::grad({y.square().sum()}, {scale})[0]}};
    });
    tensorpack::optimize(trace, {"grad", "y"});
    const Tensors expected = outcome_of(trace, inputs, {scale});
    const size_t before = trace.nodes.size();
    make_functional(trace, at::kCPU);
    EXPECT_GT(fuse_pointwise(trace, at::kCPU), 0);
    eliminate_dead_code(trace, {"grad", "y"});
    EXPECT_LT(trace.nodes.size(), before);
    expect_close(expected, outcome_of(trace, inputs, {scale}));
  }
}

TEST(PointwiseFusionTest, ALinearChainIsOneOperator) {
  const Tensors inputs = {at::randn({4, 6}), at::randn({6})};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", torch::leaky_relu(in[0] * 2 + in[1], 0.2).sigmoid()}};
  });
  const Tensors expected = outcome_of(trace, inputs, {});
  EXPECT_EQ(fuse_pointwise(trace, at::kCPU), 1);
  EXPECT_EQ(operators(trace), (std::vector<std::string>{"tensorpack::pointwise"}));
  expect_close(expected, outcome_of(trace, inputs, {}));
}

TEST(PointwiseFusionTest, InPlaceOperatorsTakePart) {
  const Tensors inputs = {at::randn({4, 6}), at::randn({4, 6})};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].sigmoid().sub_(in[1]).mul_(3).div_(2).view({24})}};
  });
  const Tensors expected = outcome_of(trace, inputs, {});
  make_functional(trace, at::kCPU);
  EXPECT_EQ(fuse_pointwise(trace, at::kCPU), 1);
  EXPECT_EQ(operators(trace), (std::vector<std::string>{"tensorpack::pointwise", "aten::view"}));
  expect_close(expected, outcome_of(trace, inputs, {}));
}

TEST(PointwiseFusionTest, ViewsThatAreOverwrittenStayWhatTheyAre) {
  const Tensors inputs = {at::randn({4, 6}), at::randn({4, 6})};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    const at::Tensor x = in[0].sigmoid().sub_(in[1]);
    const at::Tensor view = x.view({24});
    x.mul_(3);
    return {{"y", view * 2 + 1}};
  });
  const Tensors expected = outcome_of(trace, inputs, {});
  make_functional(trace, at::kCPU);
  fuse_pointwise(trace, at::kCPU);
  expect_close(expected, outcome_of(trace, inputs, {}));
}

TEST(PointwiseFusionTest, WhatIsWrittenInBetweenIsReadAtTheRightTime) {
  const at::Tensor variable = at::ones({4});
  const Tensors inputs = {at::randn({4})};
  Trace trace = trace_of(inputs, {variable}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor before = in[0] * variable;
    variable.add_(1);
    return {{"y", before + variable}};
  });
  const Tensors expected = outcome_of(trace, inputs, {variable});
  fuse_pointwise(trace, at::kCPU);
  expect_close(expected, outcome_of(trace, inputs, {variable}));
}

TEST(PointwiseFusionTest, SumsOverRowsOfALargeGradientBecomePartOfIt) {
  const at::Tensor bias = at::randn({256}).set_requires_grad(true);
  const at::Tensor w = at::randn({256, 4}).set_requires_grad(true);
  const Tensors inputs = {at::randn({512, 4})};
  Trace trace = trace_of(inputs, {bias, w}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = torch::gelu(torch::linear(in[0], w, bias).view({2, 256, 256}));
    const auto grads = torch::autograd::grad({y.square().sum()}, {bias, w});
    return {{"bias", grads[0]}, {"w", grads[1]}};
  });
  tensorpack::optimize(trace, {"bias", "w"});
  const Tensors expected = outcome_of(trace, inputs, {bias, w});
  fuse_pointwise(trace, at::kCPU);
  EXPECT_THAT(operators(trace), Contains("tensorpack::pointwise_sum"));
  EXPECT_THAT(operators(trace), Not(Contains("aten::sum.dim_IntList")));
  const Tensors values = outcome_of(trace, inputs, {bias, w});
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(expected[i], values[i], 1e-3, 1e-3)) << i;
  }
}

TEST(PointwiseFusionTest, BiasesOfConvolutionsGoWithWhatFollows) {
  const at::Tensor w =
      at::randn({32, 8, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast).set_requires_grad(true);
  const at::Tensor b = at::randn({32}).set_requires_grad(true);
  const Tensors inputs = {at::randn({8, 8, 16, 16}).contiguous(at::MemoryFormat::ChannelsLast)};
  Trace trace = trace_of(inputs, {w, b}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor y = torch::leaky_relu(at::conv2d(in[0], w, b, 1, 1), 0.2);
    const auto grads = torch::autograd::grad({(y * y).sum()}, {w, b});
    return {{"y", y}, {"w", grads[0]}, {"b", grads[1]}};
  });
  tensorpack::optimize(trace, {"b", "w", "y"});
  const Tensors expected = outcome_of(trace, inputs, {w, b});
  expose_biases(trace, at::kCPU);
  EXPECT_THAT(operators(trace), Contains("aten::sum.dim_IntList"));
  fuse_pointwise(trace, at::kCPU);
  EXPECT_THAT(operators(trace), Not(Contains("aten::leaky_relu")));
  EXPECT_THAT(operators(trace), Not(Contains("aten::sum.dim_IntList")));
  EXPECT_THAT(operators(trace), Contains("tensorpack::pointwise_sum"));
  const Tensors values = outcome_of(trace, inputs, {w, b});
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::allclose(expected[i], values[i], 1e-3, 1e-2)) << i;
  }
}

TEST(PointwiseFusionTest, TypesThatLibtorchRoundsFirstAreLeftAlone) {
  const Tensors inputs = {at::randn({4}).to(at::kBFloat16), at::randn({}),
                          at::ones({4}, at::kLong)};
  Trace trace = trace_of(inputs, {}, [](const Tensors& in) -> NamedTensors {
    return {{"a", in[0] * in[1] * in[1]}, {"b", (in[2] + 1) * 2}};
  });
  EXPECT_EQ(fuse_pointwise(trace, at::kCPU), 0);
}

// ---- updates

TEST(FeedUpdatesTest, GradientsThatAreCastForUpdatesAloneAreReadAsTheyAre) {
  const at::Tensor a = at::randn({4, 6}), b = at::randn({2, 6});
  const Tensors inputs = {at::randn({6, 6}).to(at::kBFloat16), at::full({}, 0.1)};
  const auto body = [&](const Tensors& in, bool reads) -> NamedTensors {
    const at::Tensor grad = (in[0] * 2).to(at::kFloat);  // of both, as one matrix
    kernels::sgd_({a, b}, {}, {grad.narrow(0, 0, 4), grad.narrow(0, 4, 2)}, in[1], {});
    if (reads) return {{"norm", grad.norm()}};
    return {};
  };
  const at::NoGradGuard no_grad;
  Trace trace = trace_of(inputs, {a, b}, [&](const Tensors& in) { return body(in, false); });
  feed_updates(trace, at::kCPU);
  EXPECT_EQ(count(trace, "aten::_to_copy"), 0);
  const Node& update = trace.nodes.back();
  ASSERT_EQ(update.op_name(), "tensorpack::sgd_");
  for (ValueId id : update.arguments[2].ids) {
    EXPECT_EQ(trace.values[id].options.dtype(), at::kBFloat16);
  }
  Trace other = trace_of(inputs, {a, b}, [&](const Tensors& in) { return body(in, true); });
  feed_updates(other, at::kCPU);
  EXPECT_EQ(count(other, "aten::_to_copy"), 1);
}

}  // namespace
}  // namespace tensorpack::cuda
