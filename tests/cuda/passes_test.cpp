// SPDX-License-Identifier: Apache-2.0
// CUDA's passes, on traces of the CPU.
#include "tensorpack/cuda/passes/passes.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/passes/passes.h"
#include "tests/cuda/fusion.h"

namespace tensorpack::cuda {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

const Tensors kInput{at::arange(6).reshape({2, 3}).to(at::kFloat)};

at::Tensor cast(const at::Tensor& tensor) { return tensor.to(at::kBFloat16); }

TEST(BatchCastsTest, CastsOfVariablesAreMadeTogetherBeforeTheFirstUse) {
  const at::Tensor a = at::rand({3});
  const at::Tensor b = at::rand({3});
  Trace trace = trace_of(kInput, {a, b}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor first = in[0].exp() * cast(a);
    return {{"y", first.sin() * cast(b)}};
  });
  const at::Tensor expected = run(trace, kInput, "y");
  batch_casts(trace, at::kCPU);
  EXPECT_THAT(operators(trace), ElementsAre("aten::exp", "tensorpack::cast_together",
                                            "aten::mul.Tensor", "aten::sin", "aten::mul.Tensor"));
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
}

TEST(BatchCastsTest, CastsOfResultsAreMadeTogetherWhenTheyAreNeeded) {
  const at::Tensor w = at::zeros({2, 3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor first = cast(in[0].exp());
    const at::Tensor second = cast(in[0].sin());
    w.add_(first);
    w.add_(second);
    return {{"w", w.clone()}};
  });
  w.zero_();
  const at::Tensor expected = run(trace, kInput, "w");
  batch_casts(trace, at::kCPU);
  EXPECT_THAT(operators(trace),
              ElementsAre("aten::exp", "aten::sin", "tensorpack::cast_together",
                          "aten::add_.Tensor", "aten::add_.Tensor", "aten::clone"));
  w.zero_();
  EXPECT_TRUE(at::equal(run(trace, kInput, "w"), expected));
}

TEST(BatchCastsTest, AWriteBetweenKeepsCastsApart) {
  const at::Tensor a = at::rand({3});
  Trace trace = trace_of(kInput, {a}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor before = cast(a);
    a.add_(in[0].sum(0));
    return {{"y", before + cast(a)}};
  });
  const std::vector<std::string> as_recorded = operators(trace);
  batch_casts(trace, at::kCPU);
  EXPECT_EQ(operators(trace), as_recorded);
}

TEST(BatchCastsTest, AWriteThroughAViewBetweenKeepsCastsApart) {
  const at::Tensor a = at::rand({3});
  const at::Tensor b = at::rand({3});
  Trace trace = trace_of(kInput, {a, b}, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor first = cast(b) * in[0];
    a.narrow(0, 0, 1).add_(1);
    return {{"y", first * cast(a)}};
  });
  batch_casts(trace, at::kCPU);
  EXPECT_THAT(operators(trace), Not(Contains("tensorpack::cast_together")));
}

TEST(BatchCastsTest, OneCastOfAnotherIsNotMadeWithIt) {
  const at::Tensor a = at::rand({3});
  const at::Tensor b = at::rand({3});
  Trace trace = trace_of(kInput, {a, b}, [&](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] * cast(a).to(at::kFloat) * cast(b).to(at::kFloat)}};
  });
  const at::Tensor expected = run(trace, kInput, "y");
  batch_casts(trace, at::kCPU);
  EXPECT_THAT(operators(trace), Contains("tensorpack::cast_together").Times(1));
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
}

TEST(BatchCastsTest, OtherTypesLayoutsAndLargeOnesAreLeftAlone) {
  const at::Tensor a = at::rand({3, 2});
  const at::Tensor large = at::rand({5 << 20});
  Trace trace = trace_of(kInput, {a, large}, [&](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].mm(a).to(at::kDouble) + cast(a).sum() +
                      a.t().expand({2, 2, 3}).to(at::kBFloat16).sum() + cast(large).sum()}};
  });
  const std::vector<std::string> as_recorded = operators(trace);
  batch_casts(trace, at::kCPU);
  EXPECT_EQ(operators(trace), as_recorded);
}

TEST(BatchCastsTest, CastsToOneTypeAreMadeTogether) {
  const Tensors w = {at::rand({3}), at::rand({3}), at::rand({3}), at::rand({3})};
  Trace trace = trace_of(kInput, w, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor first = in[0] * cast(w[0]) * w[1].to(at::kHalf);
    return {{"y", first * cast(w[2]) * w[3].to(at::kHalf)}};
  });
  const at::Tensor expected = run(trace, kInput, "y");
  batch_casts(trace, at::kCPU);
  EXPECT_EQ(count(trace, "tensorpack::cast_together"), 2);
  EXPECT_EQ(count(trace, "aten::_to_copy"), 0);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
}

TEST(BatchCastsTest, OnTheCpuOptimizeLeavesCastsAlone) {
  const at::Tensor a = at::rand({3});
  const at::Tensor b = at::rand({3});
  Trace trace = trace_of(kInput, {a, b}, [&](const Tensors& in) -> NamedTensors {
    return {{"y", in[0] * cast(a) * cast(b)}};
  });
  cuda::optimize(trace, {"y"});
  EXPECT_THAT(operators(trace), Not(Contains("tensorpack::cast_together")));
}

// ---- in-place operators

TEST(MakeFunctionalTest, InPlaceOperatorsMakeNewMemory) {
  Trace trace = trace_of(kInput, {}, [](const Tensors& in) -> NamedTensors {
    at::Tensor y = in[0].sin();
    const at::Tensor before = y.exp();
    y.relu_();
    y.add_(before);
    return {{"y", y}, {"z", y * y}};
  });
  const at::Tensor y = run(trace, kInput, "y");
  const at::Tensor z = run(trace, kInput, "z");
  make_functional(trace, at::kCPU);
  EXPECT_THAT(operators(trace), ElementsAre("aten::sin", "aten::exp", "aten::relu",
                                            "aten::add.Tensor", "aten::mul.Tensor"));
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), y));
  EXPECT_TRUE(at::equal(run(trace, kInput, "z"), z));
}

TEST(MakeFunctionalTest, WhatOthersCanSeeIsWrittenInPlace) {
  const at::Tensor w = at::zeros({2, 3});
  Trace trace = trace_of(kInput, {w}, [&](const Tensors& in) -> NamedTensors {
    w.add_(in[0]);  // a variable
    const at::Tensor y = in[0].sin();
    const at::Tensor view = y.narrow(0, 0, 1);
    y.relu_();  // seen through the view
    const at::Tensor z = in[0].sin();
    z.t().relu_();
    const at::Tensor row = in[0].cos();
    row.add_(w[0]);  // broadcast
    return {{"y", view + z[0] + row[0]}};
  });
  const std::vector<std::string> as_recorded = operators(trace);
  make_functional(trace, at::kCPU);
  EXPECT_EQ(operators(trace), as_recorded);
}

// ---- all of them

TEST(OptimizeForCudaTest, EveryPassHasItsSwitch) {
  const Norm norm;
  const auto count_of = [&](const FusionOptions& options) {
    Trace trace = trace_of({image()}, norm.variables(), [&](const Tensors& in) -> NamedTensors {
      const at::NoGradGuard no_grad;
      return {{"y", at::relu(norm(in[0]))}};
    });
    cuda::optimize(trace, {"y"}, options);
    return count(trace, "tensorpack::batch_norm_act");
  };
  EXPECT_EQ(count_of({.device = at::kCPU}), 1);
  EXPECT_EQ(count_of({.batch_norm = false, .device = at::kCPU}), 0);
  EXPECT_EQ(count_of({}), 0);  // there is nothing on CUDA
}

TEST(OptimizeForCudaTest, NoneLeavesLibtorchsOperators) {
  const FusionOptions options = FusionOptions::none();
  EXPECT_FALSE(options.batch_norm || options.bias_relu || options.column_sums ||
               options.cross_entropy || options.layer_norm || options.max_pool ||
               options.batch_casts || options.memsets || options.side_stream || options.recompute);
}

}  // namespace
}  // namespace tensorpack::cuda
