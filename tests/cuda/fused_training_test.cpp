// SPDX-License-Identifier: Apache-2.0
// Trainings whose operators are fused against those whose operators are not.
#include <gmock/gmock.h>
#include <torch/autograd.h>

#include <map>
#include <set>

#include "examples/models/resnet.h"
#include "examples/models/transformer.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/session/device_memory.h"
#include "tests/cuda/device.h"
#include "tests/cuda/little_memory.h"
#include "tests/support/capture.h"
#include "tests/support/throws.h"

namespace tensorpack::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr int kSteps = 6;  // warming up, capturing, launching

Tensor resnet(const Tensor& image) {
  Tensor l = torch::relu(examples::resnet::conv_bn("conv0", image, 16, 3, 1));
  l = MaxPooling("pool0", l, 3, {.strides = Size2D(2), .padding = Padding::of(1)});
  for (int k = 0; k < 3; ++k) {
    VariableScope scope("block" + std::to_string(k));
    l = examples::resnet::bottleneck(l, 8, k == 1 ? 2 : 1);
  }
  return FullyConnected("linear", GlobalAvgPooling("gap", l), {.units = 10});
}

// A network, what it is fed, and an optimizer.
struct Training {
  Training(std::function<Tensor(const Tensor&)> network, std::vector<TensorSpec> inputs)
      : graph({.device = at::kCUDA}) {
    op = graph.define({
        .name = "train",
        .inputs = std::move(inputs),
        .body = [this, network](const std::vector<Tensor>& in) -> NamedTensors {
          TowerContext tower(graph);
          const TowerFunc logits = [&](const Tensor& x) { return network(x); };
          const Tensor scores = logits({in[0]})[0].flatten(0, -2).to(torch::kFloat);
          const Tensor cost = torch::cross_entropy_loss(scores, in[1].flatten());
          minimize(*optimizer, cost, graph.variables().trainable());
          return {{"cost", cost}};
        },
    });
  }

  Owned<Optimizer> optimizer = Momentum(0.05);
  Graph graph;
  Op op;
};

class FusedTrainingTest : public CudaTest {
 protected:
  void expect_same(const std::function<Tensor(const Tensor&)>& network,
                   const std::vector<TensorSpec>& inputs,
                   const std::function<std::vector<Tensor>()>& batch, Precision precision,
                   const std::set<std::string>& expected_operators) {
    Training fused(network, inputs), unfused(network, inputs);
    for (Variable* variable : fused.graph.variables().trainable()) {
      unfused.graph.variables().at(variable->name).assign(variable->tensor.detach());
    }
    Session captured(fused.graph, {.precision = precision});
    Session replayed(unfused.graph, {.executor = ExecutorKind::kReplay, .precision = precision});
    for (int i = 0; i < kSteps; ++i) {
      const std::vector<Tensor> data = batch();
      const Feeds feeds{{inputs[0].name, data[0]}, {inputs[1].name, data[1]}};
      const auto a = captured.run(fused.op, {"cost"}, feeds)[0].item<double>();
      const auto b = replayed.run(unfused.op, {"cost"}, feeds)[0].item<double>();
      EXPECT_NEAR(a, b, 0.02 * b) << "step " << i;
    }
    Trace trace = captured.trace(fused.op);
    cuda::optimize(trace, {"cost"});
    std::set<std::string> operators;
    for (const Node& node : trace.nodes) operators.insert(node.op_name());
    for (const std::string& name : expected_operators) {
      EXPECT_TRUE(operators.contains(name)) << name;
    }
  }
};

TEST_F(FusedTrainingTest, ResidualNetworksLearnTheSame) {
  for (const Precision precision : {Precision::kBFloat16, Precision::kTf32}) {
    expect_same(resnet, {{"image", {-1, 3, 32, 32}}, {"label", {-1}, at::kLong}},
                [] {
                  return std::vector<Tensor>{torch::randn({64, 3, 32, 32}),
                                             torch::randint(0, 10, {64}, at::kLong)};
                },
                precision,
                {"tensorpack::batch_norm_act", "tensorpack::batch_norm_act_backward",
                 "tensorpack::batch_norm_statistics", "tensorpack::batch_norm_pool",
                 "tensorpack::batch_norm_pool_backward", "tensorpack::cross_entropy",
                 "tensorpack::filter_gradient"});
  }
}

TEST_F(FusedTrainingTest, TransformersLearnTheSame) {
  const auto network = [](const Tensor& words) {
    return examples::transformer(words, {.vocabulary = 1024, .dropout = 0});
  };
  expect_same(network, {{"words", {-1, 64}, at::kLong}, {"next", {-1, 64}, at::kLong}},
              [] {
                return std::vector<Tensor>{torch::randint(0, 1024, {16, 64}, at::kLong),
                                           torch::randint(0, 1024, {16, 64}, at::kLong)};
              },
              Precision::kBFloat16,
              {"tensorpack::cast_together", "tensorpack::concat_sum", "tensorpack::cross_entropy",
               "tensorpack::embedding_gradient", "tensorpack::layer_norm",
               "tensorpack::layer_norm_backward"});
}

// libtorch then gives each of them a copy of what cuDNN keeps.
TEST_F(FusedTrainingTest, BatchNormOfTwoBackwardPassesIsFused) {
  Graph graph({.device = at::kCUDA});
  const Op op = graph.define({
      .name = "twice",
      .inputs = {{"image", {-1, 3, 16, 16}}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const TowerFunc network = [](const Tensor& x) {
          return BatchNorm("bn", Conv2D("conv", x, {.filters = 16, .kernel_size = 3}));
        };
        const Tensor y = network({in[0]})[0];
        const std::vector<Tensor> weight = {graph.variables().at("conv/W").tensor};
        const auto first = torch::autograd::grad({y.pow(3).mean()}, weight, {}, true);
        const auto second = torch::autograd::grad({y.exp().mean()}, weight);
        return {{"first", first[0]}, {"second", second[0]}};
      },
  });
  Session session(graph, {.precision = Precision::kTf32});
  session.run(op, {"first", "second"}, {{"image", torch::randn({32, 3, 16, 16})}});
  Trace trace = session.trace(op);
  cuda::optimize(trace, {"first", "second"});
  std::map<std::string, int> operators;
  for (const Node& node : trace.nodes) ++operators[node.op_name()];
  EXPECT_EQ(operators["aten::cudnn_batch_norm"] + operators["aten::native_batch_norm"], 0);
  EXPECT_EQ(operators["tensorpack::batch_norm_act"], 1);
  EXPECT_EQ(operators["tensorpack::batch_norm_act_backward"], 2);
}

// ---- making things again

class RecomputeTrainingTest : public CudaTest {
 protected:
  static SessionOptions options(Recompute recompute) {
    return {.precision = Precision::kBFloat16, .deterministic = true, .recompute = recompute};
  }
  static Feeds batch() {
    return {{"image", torch::randn({256, 3, 32, 32})},
            {"label", torch::randint(0, 10, {256}, at::kLong)}};
  }
  // Beyond what is in use before, such as workspaces that libraries keep.
  template <typename Network>
  int64_t peak_memory(const Network& network, Recompute recompute) const {
    reset_peak_device_memory();
    const int64_t before = peak_device_memory()[0];
    train(network, recompute);
    return peak_device_memory()[0] - before;
  }
  // The costs of a few steps.
  template <typename Network>
  std::vector<double> train(const Network& network, Recompute recompute) const {
    torch::manual_seed(1);
    Training training(network, inputs_);
    Session session(training.graph, options(recompute));
    std::vector<double> costs;
    for (int i = 0; i < kSteps; ++i) {
      costs.push_back(session.run(training.op, {"cost"}, batch())[0].template item<double>());
    }
    return costs;
  }

  const std::vector<TensorSpec> inputs_ = {{"image", {-1, 3, 32, 32}}, {"label", {-1}, at::kLong}};
};

TEST_F(RecomputeTrainingTest, ChangesNoBit) {
  Training keeping(resnet, inputs_), making_again(resnet, inputs_);
  for (Variable* variable : keeping.graph.variables().trainable()) {
    making_again.graph.variables().at(variable->name).assign(variable->tensor.detach());
  }
  Session a(keeping.graph, options(Recompute::kNever)),
      b(making_again.graph, options(Recompute::kAlways));
  for (int i = 0; i < kSteps; ++i) {
    const Feeds feeds = batch();
    EXPECT_EQ(a.run(keeping.op, {"cost"}, feeds)[0].item<double>(),
              b.run(making_again.op, {"cost"}, feeds)[0].item<double>())
        << "step " << i;
  }
  for (Variable* variable : keeping.graph.variables().trainable()) {
    EXPECT_TRUE(
        torch::equal(variable->tensor, making_again.graph.variables().at(variable->name).tensor))
        << variable->name;
  }
}

TEST_F(RecomputeTrainingTest, TakesLessMemoryFromTheFirstStepOn) {
  peak_memory(resnet, Recompute::kNever);  // has libraries take their workspaces
  EXPECT_LT(peak_memory(resnet, Recompute::kAlways), peak_memory(resnet, Recompute::kNever));
}

// Layers whose outputs are nearly all that it takes, 16 MiB each.
Tensor wide_layers(Tensor l) {
  for (int k = 0; k < 16; ++k) {
    const std::string number = std::to_string(k);
    l = Conv2D("conv" + number, l, {.filters = 32, .kernel_size = 3, .use_bias = false});
    l = torch::relu(BatchNorm("bn" + number, l));
  }
  return FullyConnected("linear", GlobalAvgPooling("gap", l), {.units = 10});
}

TEST_F(RecomputeTrainingTest, AStepThatDoesNotFitOtherwiseIsTrainedInLessMemory) {
  peak_memory(wide_layers, Recompute::kNever);  // has libraries take their workspaces
  const int64_t keeping = peak_memory(wide_layers, Recompute::kNever);
  const int64_t making_again = peak_memory(wide_layers, Recompute::kAlways);
  ASSERT_LT(making_again, keeping * 3 / 4);
  const std::vector<double> costs = train(wide_layers, Recompute::kNever);

  const LittleMemory left(static_cast<size_t>(keeping + making_again) / 2);
  EXPECT_ERROR(train(wide_layers, Recompute::kNever), "CUDA out of memory");
  const std::string log =
      stdout_of([&] { EXPECT_EQ(train(wide_layers, Recompute::kIfNeeded), costs); });
  EXPECT_THAT(log, HasSubstr("cuda:0 has no room for op 'train' as it is"));
  EXPECT_THAT(log, Not(HasSubstr("was not verified")));
}

}  // namespace
}  // namespace tensorpack::test
