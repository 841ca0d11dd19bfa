// SPDX-License-Identifier: Apache-2.0
// Every layer in a training step: the same numbers replayed as called, gradients that agree with
// finite differences, and the same variables in a second tower.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/graph.h"
#include "tensorpack/models/attention.h"
#include "tensorpack/models/conv1d.h"
#include "tensorpack/models/conv2d_transpose.h"
#include "tensorpack/models/embedding.h"
#include "tensorpack/models/linear_wrap.h"
#include "tensorpack/models/nonlinear.h"
#include "tensorpack/models/norm.h"
#include "tensorpack/models/recurrent.h"
#include "tensorpack/models/symbolic.h"
#include "tensorpack/models/upsample.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"

namespace tensorpack::test {
namespace {

using at::Tensor;

struct Case {
  const char* name;
  Shape shape;  // of the input
  Tensor (*layer)(const Tensor&);
  bool has_state = false;  // random, or different from call to call
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Shape kImage{4, 4, 6, 6};

std::vector<Case> cases() {
  return {
      {"Conv2D", kImage,
       [](const Tensor& x) {
         return Conv2D("l", x, {.filters = 2, .kernel_size = Size2D(3, 2), .strides = 2});
       }},
      {"DepthwiseConv2D", kImage,
       [](const Tensor& x) { return DepthwiseConv2D("l", x, {.kernel_size = 3}); }},
      {"Conv1D",
       {4, 3, 7},
       [](const Tensor& x) { return Conv1D("l", x, {.filters = 2, .kernel_size = 4}); }},
      {"Conv2DTranspose", kImage,
       [](const Tensor& x) {
         return Conv2DTranspose("l", x, {.filters = 2, .kernel_size = 5, .strides = 2});
       }},
      {"FullyConnected", kImage,
       [](const Tensor& x) {
         return FullyConnected("l", x, {.units = 3, .activation = torch::tanh});
       }},
      {"BatchNorm", kImage, [](const Tensor& x) { return BatchNorm("l", x).pow(3); }, true},
      {"BNReLU", kImage, [](const Tensor& x) { return BNReLU("l", x); }, true},
      {"BatchRenorm", kImage,
       [](const Tensor& x) { return BatchRenorm("l", x, {.rmax = 3, .dmax = 5}).pow(3); }, true},
      {"LayerNorm", kImage, [](const Tensor& x) { return LayerNorm("l", x).pow(3); }},
      {"LayerNormOfTokens", {4, 3, 6}, [](const Tensor& x) { return LayerNorm("l", x).pow(3); }},
      {"InstanceNorm", kImage, [](const Tensor& x) { return InstanceNorm("l", x).pow(3); }},
      {"GroupNorm", kImage,
       [](const Tensor& x) { return GroupNorm("l", x, {.groups = 2}).pow(3); }},
      {"MaxPooling", kImage, [](const Tensor& x) { return MaxPooling("l", x, 2); }},
      {"AvgPooling", kImage, [](const Tensor& x) { return AvgPooling("l", x, 2); }},
      {"MaxPoolingSame", kImage,
       [](const Tensor& x) {
         return MaxPooling("l", x, 3, {.strides = 2, .padding = Padding::same()});
       }},
      {"AvgPoolingSame", kImage,
       [](const Tensor& x) {
         return AvgPooling("l", x, 3, {.strides = 2, .padding = Padding::same()});
       }},
      {"GlobalAvgPooling", kImage, [](const Tensor& x) { return GlobalAvgPooling("l", x); }},
      {"FixedUnPooling", kImage,
       [](const Tensor& x) {
         return FixedUnPooling("l", x, {2, 3});
       }},
      {"BilinearUpSample", kImage, [](const Tensor& x) { return BilinearUpSample("l", x, 2); }},
      {"PReLU", kImage, [](const Tensor& x) { return PReLU("l", x, {.init = 0.3}); }},
      {"Maxout", kImage, [](const Tensor& x) { return Maxout("l", x, 2); }},
      {"ConcatWith", kImage, [](const Tensor& x) { return ConcatWith("l", x, {x * 2}, 1); }},
      {"Dropout", kImage, [](const Tensor& x) { return Dropout("l", x); }, true},
      {"Embedding",
       {4, 3},
       [](const Tensor& x) {
         const Tensor ids = (x.abs() * 2).clamp(0, 5).to(at::kLong);
         return Embedding("l", ids, {.vocabulary = 6, .features = 3}) * x.unsqueeze(2);
       }},
      {"LSTM", {3, 4, 5}, [](const Tensor& x) { return LSTM("l", x, {.units = 3}).output; }},
      {"GRU",
       {3, 4, 5},
       [](const Tensor& x) {
         return GRU("l", x, {.units = 3, .layers = 2, .bidirectional = true}).output;
       }},
      {"MultiHeadAttention",
       {2, 3, 4},
       [](const Tensor& x) { return MultiHeadAttention("l", x, {.heads = 2, .causal = true}); }},
      {"HuberLoss", {8}, [](const Tensor& x) { return huber_loss(x); }},
  };
}

// A trained scale before the layer and a fixed weighting behind it, so that the layer's own
// gradient counts too.
Tensor cost_of(const Case& c, const Tensor& x) {
  const Tensor scale = get_variable("scale", x.sizes().slice(1), init::normal(0.3, 1));
  const Tensor y = c.layer(x * scale);
  const Tensor weight = at::arange(y.numel(), y.options()).reshape(y.sizes()).sin();
  return (y * weight).sum() / 10;
}

class EveryLayerTest : public testing::TestWithParam<Case> {};

std::vector<Tensor> train(const Case& c, ExecutorKind executor) {
  at::manual_seed(3);
  Graph graph;
  SGD optimizer = Momentum(0.02);
  const Op step = graph.define({
      .name = "step",
      .inputs = {{"x", c.shape}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const Tensor cost = cost_of(c, in[0]);
        minimize(optimizer, cost, graph.variables().trainable());
        return {{"cost", cost}};
      },
  });
  Session session(graph, {.executor = executor});
  std::vector<Tensor> values;
  for (int i = 0; i < 3; ++i) {
    const Tensor x = at::randn(c.shape, at::detail::createCPUGenerator(i + 1));
    values.push_back(session.run(step, {"cost"}, {{"x", x}})[0].clone());
  }
  for (const Variable& v : graph.variables().all()) values.push_back(v.tensor.detach().clone());
  return values;
}

TEST_P(EveryLayerTest, ReplayEqualsEager) {
  const std::vector<Tensor> eager = train(GetParam(), ExecutorKind::kEager);
  const std::vector<Tensor> replay = train(GetParam(), ExecutorKind::kReplay);
  ASSERT_EQ(eager.size(), replay.size());
  for (size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(at::equal(eager[i], replay[i])) << i;
}

TEST_P(EveryLayerTest, GradientsEqualFiniteDifferences) {
  const Case& c = GetParam();
  if (c.has_state && std::string(c.name) == "Dropout") GTEST_SKIP() << "draws another mask";
  if (std::string(c.name) == "BatchRenorm") GTEST_SKIP() << "takes its corrections for constants";
  Graph graph;
  const Tensor x = at::randn(c.shape, at::detail::createCPUGenerator(1));
  auto cost = [&] {
    TowerContext tower(graph);
    return cost_of(c, x);
  };
  const Gradients gradients = [&] {
    const Tensor first = cost();
    return compute_gradients(first, graph.variables().trainable());
  }();
  constexpr double kStep = 1e-2;
  at::NoGradGuard no_grad;
  for (const Gradient& gradient : gradients) {
    // Along one random direction: every element counts.
    const Tensor& w = gradient.variable->tensor;
    const Tensor direction = at::randn(w.sizes(), at::detail::createCPUGenerator(7));
    const Tensor start = w.clone();
    w.copy_(start + kStep * direction / direction.norm());
    const double above = cost().item<double>();
    w.copy_(start - kStep * direction / direction.norm());
    const double below = cost().item<double>();
    w.copy_(start);
    const double expected = (above - below) / (2 * kStep);
    const double found = (gradient.value * direction / direction.norm()).sum().item<double>();
    EXPECT_NEAR(found, expected, 2e-2 * std::abs(expected) + 2e-2) << gradient.variable->name;
  }
}

TEST_P(EveryLayerTest, ASecondTowerSharesTheVariables) {
  const Case& c = GetParam();
  Graph graph;
  const Tensor x = at::randn(c.shape);
  {
    TowerContext tower(graph);
    cost_of(c, x);
  }
  const std::vector<std::string> names = graph.variables().names();
  {
    TowerContext tower(graph, {.is_training = false, .shares_variables = true});
    const Tensor first = cost_of(c, x);
    EXPECT_TRUE(tower.call().named_tensors().contains("l/output") ||
                std::string(c.name) == "HuberLoss");
  }
  EXPECT_EQ(graph.variables().names(), names);
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayerTest, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tensorpack::test
