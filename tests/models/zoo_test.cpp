// SPDX-License-Identifier: Apache-2.0
// The model zoo of the examples: the published numbers of parameters, and steps that train.
#include <gtest/gtest.h>

#include "examples/models/alexnet.h"
#include "examples/models/lenet.h"
#include "examples/models/resnet.h"
#include "examples/models/transformer.h"
#include "examples/models/vgg.h"

namespace tensorpack::examples {
namespace {

int64_t count_parameters(Graph& graph) {
  int64_t count = 0;
  for (const Variable* variable : graph.variables().trainable()) count += variable->tensor.numel();
  return count;
}

// Builds the model once in prediction mode, without gradients.
template <typename Model>
int64_t parameters_of(const Model& model, const Tensor& input, std::vector<int64_t> output) {
  Graph graph;
  TowerContext tower(graph, {.is_training = false});
  torch::NoGradGuard no_grad;
  EXPECT_EQ(model(input).sizes().vec(), output);
  return count_parameters(graph);
}

const std::vector<int64_t> kClasses{1, 1000};

TEST(ModelZooTest, LeNetHasThePublishedSize) {
  auto model = [](const Tensor& x) { return lenet(x); };
  EXPECT_EQ(parameters_of(model, torch::zeros({1, 1, 28, 28}), {1, 10}), 431'080);
}

TEST(ModelZooTest, AlexNetHasThePublishedSize) {
  auto model = [](const Tensor& x) { return alexnet(x); };
  EXPECT_EQ(parameters_of(model, torch::zeros({1, 3, 224, 224}), kClasses), 61'100'840);
}

TEST(ModelZooTest, Vgg16HasThePublishedSize) {
  auto model = [](const Tensor& x) { return vgg16(x); };
  EXPECT_EQ(parameters_of(model, torch::zeros({1, 3, 224, 224}), kClasses), 138'357'544);
}

TEST(ModelZooTest, ResNetsHaveThePublishedSizes) {
  const Tensor image = torch::zeros({1, 3, 224, 224});
  auto small = [](const Tensor& x) { return resnet18(x); };
  EXPECT_EQ(parameters_of(small, image, kClasses), 11'689'512);
  auto large = [](const Tensor& x) { return resnet50(x); };
  EXPECT_EQ(parameters_of(large, image, kClasses), 25'557'032);
}

TEST(ModelZooTest, CifarResNetsHaveThePublishedSizes) {
  for (const auto& [n, count] : {std::pair{3, 269'722}, {9, 853'018}, {18, 1'727'962}}) {
    auto model = [n = n](const Tensor& x) { return resnet_cifar(x, n); };
    EXPECT_EQ(parameters_of(model, torch::zeros({1, 3, 32, 32}), {1, 10}), count) << n;
  }
}

TEST(ModelZooTest, TheTransformerOfGpt2sSizeHasItsParameters) {
  auto model = [](const Tensor& x) {
    return transformer(
        x, {.vocabulary = 50257, .context = 1024, .features = 768, .heads = 12, .layers = 12});
  };
  EXPECT_EQ(parameters_of(model, torch::zeros({1, 4}, torch::kLong), {1, 4, 50257}), 124'439'808);
}

// The cost of the last of some steps on one batch, as a share of the first.
double progress(OpBody cost, const std::vector<TensorSpec>& specs, const Feeds& feeds) {
  Graph graph;
  Adam optimizer({.lr = 3e-3});
  const Op step = graph.define({
      .name = "step",
      .inputs = specs,
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const NamedTensors result = cost(in);
        minimize(optimizer, result.at("cost"), graph.variables().trainable());
        return result;
      },
  });
  Session session(graph);
  const double first = session.run(step, {"cost"}, feeds)[0].item<double>();
  double last = first;
  for (int i = 0; i < 15; ++i) last = session.run(step, {"cost"}, feeds)[0].item<double>();
  return last / first;
}

TEST(ModelZooTest, ACifarResNetLearnsABatchByHeart) {
  torch::manual_seed(1);
  const Feeds feeds{{"x", torch::randn({8, 3, 32, 32})}, {"label", torch::arange(8)}};
  auto cost = [](const std::vector<Tensor>& in) -> NamedTensors {
    return {{"cost", torch::cross_entropy_loss(resnet_cifar(in[0], 1), in[1])}};
  };
  const std::vector<TensorSpec> specs{{"x", {-1, 3, 32, 32}}, {"label", {-1}, torch::kLong}};
  EXPECT_LT(progress(cost, specs, feeds), 0.5);
}

TEST(ModelZooTest, TheTransformerLearnsABatchByHeart) {
  torch::manual_seed(1);
  const Feeds feeds{{"words", torch::randint(0, 20, {4, 9}, torch::kLong)}};
  auto cost = [](const std::vector<Tensor>& in) -> NamedTensors {
    const Tensor logits = transformer(in[0].narrow(1, 0, 8), {.vocabulary = 20, .context = 8});
    return {{"cost",
             torch::cross_entropy_loss(logits.flatten(0, 1), in[0].narrow(1, 1, 8).reshape(-1))}};
  };
  EXPECT_LT(progress(cost, {{"words", {-1, 9}, torch::kLong}}, feeds), 0.8);
}

}  // namespace
}  // namespace tensorpack::examples
