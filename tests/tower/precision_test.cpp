// SPDX-License-Identifier: Apache-2.0
// Models in bfloat16 with float32 variables.
#include "tensorpack/tower/precision.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tensorpack/graph/graph.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/pooling.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/tower/tower_func.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using at::Tensor;

Tensor logits_of(const Tensor& image) {
  Tensor l = Conv2D("conv0", image, {.filters = 8, .kernel_size = 3, .use_bias = false});
  l = BNReLU("bn0", l);
  l = at::relu(Conv2D("conv1", MaxPooling("pool", l, 2), {.filters = 8, .kernel_size = 3}));
  return FullyConnected("fc", l, {.units = 4});
}

// The cost of each of some steps on one batch.
std::vector<double> costs(ExecutorKind executor, bool mixed) {
  at::manual_seed(1);
  const Feeds feeds{{"x", at::randn({8, 1, 8, 8})}, {"label", at::arange(8).remainder(4)}};
  Graph graph;
  SGD optimizer = Momentum(0.05);
  const Op step = graph.define({
      .name = "step",
      .inputs = {{"x", {-1, 1, 8, 8}}, {"label", {-1}, at::kLong}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const Tensor logits = [&] {
          const MixedPrecision precision(mixed ? Precision::kBFloat16 : Precision::kFloat32);
          return logits_of(in[0]);
        }();
        EXPECT_EQ(logits.scalar_type(), mixed ? at::kBFloat16 : at::kFloat);
        const Tensor cost = at::cross_entropy_loss(logits.to(at::kFloat), in[1]);
        minimize(optimizer, cost, graph.variables().trainable());
        return {{"cost", cost}};
      },
  });
  Session session(graph, {.executor = executor});
  std::vector<double> values;
  for (int i = 0; i < 12; ++i) {
    values.push_back(session.run(step, {"cost"}, feeds)[0].item<double>());
  }
  for (const Variable* v : graph.variables().trainable()) {
    EXPECT_EQ(v->tensor.scalar_type(), at::kFloat) << v->name;
  }
  return values;
}

TEST(MixedPrecisionTest, TrainsAsFloatsDoToThePrecisionOfTheType) {
  const std::vector<double> mixed = costs(ExecutorKind::kReplay, true);
  const std::vector<double> full = costs(ExecutorKind::kReplay, false);
  EXPECT_NEAR(mixed.front(), full.front(), 0.02);
  EXPECT_NEAR(mixed.back(), full.back(), 0.1);
  EXPECT_LT(mixed.back(), 0.5 * mixed.front());
}

TEST(MixedPrecisionTest, ReplayEqualsEager) {
  EXPECT_EQ(costs(ExecutorKind::kReplay, true), costs(ExecutorKind::kEager, true));
}

TEST(MixedPrecisionTest, ScopesNestAndEnd) {
  Graph graph;
  TowerContext tower(graph);
  const Tensor x = at::randn({2, 3});
  {
    const MixedPrecision outer;
    EXPECT_EQ(FullyConnected("a", x, {.units = 2}).scalar_type(), at::kBFloat16);
    {
      const MixedPrecision inner(Precision::kFloat32);
      EXPECT_EQ(FullyConnected("b", x, {.units = 2}).scalar_type(), at::kFloat);
    }
    EXPECT_EQ(FullyConnected("c", x, {.units = 2}).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(FullyConnected("d", x, {.units = 2}).scalar_type(), at::kFloat);
}

// The type of what a linear layer gives in a tower function, with the session's precision.
at::ScalarType type_in(Precision precision, ExecutorKind executor) {
  Graph graph;
  const TowerFunc tower_func = [](const Tensor& x) {
    named("y", FullyConnected("fc", x, {.units = 2}));
  };
  const Op op = graph.define({
      .name = "predict",
      .inputs = {{"x", {-1, 3}}},
      .body =
          [&](const std::vector<Tensor>& in) {
            TowerContext tower(graph);
            tower_func(in);
            // Only the tower function computes in that type.
            EXPECT_EQ(at::mm(in[0], in[0].t()).scalar_type(), at::kFloat);
            return tower.call().named_tensors();
          },
  });
  Session session(graph, {.executor = executor, .precision = precision});
  return session.run(op, {"y"}, {{"x", at::ones({2, 3})}})[0].scalar_type();
}

TEST(SessionPrecisionTest, TowerFunctionsComputeInIt) {
  for (const ExecutorKind executor : {ExecutorKind::kReplay, ExecutorKind::kEager}) {
    EXPECT_EQ(type_in(Precision::kBFloat16, executor), at::kBFloat16);
    EXPECT_EQ(type_in(Precision::kTf32, executor), at::kFloat);
    EXPECT_EQ(type_in(Precision::kFloat32, executor), at::kFloat);
  }
}

TEST(SessionPrecisionTest, Float16OnTheCpuIsAnError) {
  Graph graph;
  EXPECT_ERROR(Session(graph, {.precision = Precision::kFloat16}),
               "[session] the precision is float16, which the cpu cannot do. Use bfloat16.");
}

}  // namespace
}  // namespace tensorpack::test
