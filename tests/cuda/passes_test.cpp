// SPDX-License-Identifier: Apache-2.0
// CUDA's passes, on traces of the CPU.
#include "tensorpack/cuda/passes/passes.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <functional>

#include "tensorpack/cuda/compile_ahead.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/models/attention.h"
#include "tensorpack/optim/gradient_processor.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tests/cuda/fusion.h"
#include "tests/cuda/transformer_op.h"

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

TEST(BatchCastsTest, WhatIsPutTogetherBeforeACastIsPutTogetherByIt) {
  const Tensors w = {at::rand({3}), at::rand({4, 3}), at::rand({1, 3}), at::rand({2, 3})};
  Trace trace = trace_of(kInput, w, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor first = in[0] * cast(w[0]);
    return {{"y", first.sin().matmul(cast(at::cat({w[1], w[2], w[3]})).t().to(at::kFloat))}};
  });
  const at::Tensor expected = run(trace, kInput, "y");
  batch_casts(trace, at::kCPU);
  EXPECT_THAT(operators(trace), ElementsAre("tensorpack::cast_together", "aten::mul.Tensor",
                                            "aten::sin", "aten::t", "aten::_to_copy", "aten::mm"));
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
}

TEST(BatchCastsTest, OnePutTogetherAloneIsOneOperator) {
  const Tensors w = {at::rand({2, 3}), at::rand({1, 3})};
  Trace trace = trace_of(kInput, w, [&](const Tensors& in) -> NamedTensors {
    return {{"y", in[0].sum() * cast(at::cat(w))}};
  });
  const at::Tensor expected = run(trace, kInput, "y");
  batch_casts(trace, at::kCPU);
  EXPECT_EQ(count(trace, "aten::cat"), 0);
  EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
}

TEST(BatchCastsTest, WhatIsPutTogetherOtherwiseOrReadByOthersStays) {
  const at::Tensor a = at::rand({3, 3}), b = at::rand({3, 3}), c = a.to(at::kHalf);
  const auto expect_stays = [&](const std::function<at::Tensor()>& function) {
    Trace trace = trace_of(kInput, {a, b, c}, [&](const Tensors&) -> NamedTensors {
      return {{"y", function()}};
    });
    const at::Tensor expected = run(trace, kInput, "y");
    batch_casts(trace, at::kCPU);
    EXPECT_EQ(count(trace, "aten::cat"), 1);
    EXPECT_TRUE(at::equal(run(trace, kInput, "y"), expected));
  };
  expect_stays([&] { return cast(at::cat({a, b}, 1)); });
  expect_stays([&] { return cast(at::cat({a, b.t()})); });
  expect_stays([&] { return cast(at::cat({a, b.to(at::kDouble)})); });
  expect_stays([&] {
    const at::Tensor both = at::cat({a, b});
    return both * cast(both);
  });
  expect_stays([&] {
    const at::Tensor both = at::cat({a, b});
    both[0].add_(1);
    return cast(both);
  });
  expect_stays([&] { return cast(at::cat({a, c.to(at::kFloat)})); });  // of a cast
}

TEST(BatchCastsTest, APartThatIsWrittenAfterItWasReadIsCastBefore) {
  const at::Tensor a = at::rand({2, 3}), b = at::rand({1, 3});
  const Tensors w = {a, b};
  Trace trace = trace_of(kInput, w, [&](const Tensors& in) -> NamedTensors {
    const at::Tensor both = at::cat({a, b});
    a.add_(in[0]);
    return {{"y", cast(both)}};
  });
  const Tensors expected = outcome_of(trace, kInput, w);
  batch_casts(trace, at::kCPU);
  EXPECT_THAT(operators(trace), ElementsAre("tensorpack::cast_together", "aten::add_.Tensor"));
  const Tensors found = outcome_of(trace, kInput, w);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_TRUE(at::equal(found[i], expected[i])) << i;
}

// Its layers have the weights of queries, keys and values put together.
TEST(BatchCastsTest, CastsOfAttentionsWeightsAreOneOperator) {
  Graph graph;
  SGD optimizer({.lr = 0.1});
  const Op op = graph.define({
      .name = "train",
      .inputs = {{"x", {2, 5, 8}}},
      .body = [&](const Tensors& in) -> NamedTensors {
        TowerContext tower(graph);
        const TowerFunc network = [](const at::Tensor& x) {
          const at::Tensor l = MultiHeadAttention("first", x, {.heads = 2});
          return MultiHeadAttention("second", l, {.heads = 2});
        };
        const at::Tensor cost = network({in[0]})[0].to(at::kFloat).square().mean();
        minimize(optimizer, cost, graph.variables().trainable());
        return {{"cost", cost}};
      },
  });
  Session session(graph, {.precision = Precision::kBFloat16});
  Trace trace = session.trace(op);
  cuda::optimize(trace, {"cost"}, {.device = at::kCPU});
  EXPECT_EQ(count(trace, "tensorpack::cast_together"), 1);
  EXPECT_EQ(count(trace, "aten::_to_copy"), 0);
  EXPECT_EQ(count(trace, "aten::cat"), 2);  // of gradients
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

// A step of a small one, in mixed precision: what layers have in common is seen here alone.
TEST(OptimizeForCudaTest, ATransformerTrainsTheSame) {
  Graph graph;
  SGD optimizer({.lr = 1});
  const Op op = transformer_op(graph, optimizer);
  Session session(graph, {.precision = Precision::kBFloat16});
  const Trace plain = session.trace(op);
  const Tensors batch = {at::randint(1024, {2, 32}, at::kLong),
                         at::randint(1024, {2, 32}, at::kLong)};
  Tensors variables, before;
  for (Variable* variable : graph.variables().trainable()) {
    variables.push_back(variable->tensor);
    before.push_back(variable->tensor.detach().clone());
  }
  // The cost, then the variables.
  const Tensors expected = outcome_of(plain, batch, variables);
  ASSERT_EQ(expected.size(), before.size() + 1);
  for (const Recompute recompute : {Recompute::kNever, Recompute::kAlways}) {
    Trace trace = plain;
    cuda::optimize(trace, {"cost"}, {.recompute = recompute, .device = at::kCPU});
    int64_t sums = 0;
    for (const Node& node : trace.nodes) {
      sums += node.op_name() == "tensorpack::layer_norm_backward" && node.results[4].ids[0] >= 0;
    }
    EXPECT_EQ(count(trace, "tensorpack::layer_norm_backward"), 5);
    EXPECT_EQ(sums, 4);  // for the biases of the layers that give the residuals
    EXPECT_EQ(count(trace, "tensorpack::embedding_gradient"), 1);
    std::vector<std::string> kernels;
    for (const KernelSource& kernel : kernels_of(trace, 132)) kernels.push_back(kernel.name);
    EXPECT_THAT(kernels, Contains("layer_norm_finish"));
    EXPECT_THAT(kernels, Contains("embedding_gradient"));
    const Tensors found = outcome_of(trace, batch, variables);
    ASSERT_EQ(found.size(), expected.size());
    EXPECT_TRUE(at::allclose(expected[0], found[0], 1e-3));
    for (size_t i = 0; i < before.size(); ++i) {
      const auto largest = [](const at::Tensor& t) { return t.abs().max().item<double>(); };
      const double change = largest(expected[i + 1] - before[i]);
      EXPECT_LE(largest(expected[i + 1] - found[i + 1]), 0.05 * change + 1e-5) << i;
    }
  }
}

TEST(OptimizeForCudaTest, EveryPassHasItsSwitch) {
  const Norm norm;
  const auto count_of = [&](const PassSwitches& options) {
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
  const PassSwitches options = PassSwitches::none();
  EXPECT_FALSE(options.batch_norm || options.bias_relu || options.column_sums ||
               options.cross_entropy || options.layer_norm || options.max_pool ||
               options.norm_pool || options.batch_casts || options.memsets || options.side_stream ||
               options.keep_copies);
  EXPECT_EQ(options.recompute, Recompute::kNever);
}

}  // namespace
}  // namespace tensorpack::cuda
