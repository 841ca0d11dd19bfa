// SPDX-License-Identifier: Apache-2.0
// Augmentation as a part of the step, captured with it.
#include "tensorpack/models/augment.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tensorpack/graph/graph.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/symbolic.h"
#include "tensorpack/optim/optimizer.h"
#include "tensorpack/optim/sgd.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_context.h"
#include "tests/cuda/device.h"

namespace tensorpack::test {
namespace {

using at::Tensor;
using AugmentCudaTest = CudaTest;

constexpr int64_t kClasses = 5;
constexpr int kAugmentedSteps = 8;

// All of them, one behind the other.
std::pair<Tensor, Tensor> augmented(const Tensor& bytes, const Tensor& labels) {
  Tensor x = bytes.to(at::kFloat) / 255;
  x = random_flip(random_crop(x, {.padding = 2}));
  x = color_jitter(x, {.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 20, .max = 1});
  x = normalize(x, {0.5, 0.4, 0.3}, {0.2, 0.3, 0.4});
  const auto [images, shares] =
      mixup(x, tensorpack::one_hot(labels, kClasses).to(at::kFloat), {.alpha = 0.5});
  return cutmix(images, shares);
}

struct AugmentedOutcome {
  std::vector<Tensor> images, costs, weights;
};

AugmentedOutcome train_augmented(SessionOptions options) {
  at::manual_seed(3);
  Graph graph({.device = c10::kCUDA, .seed = 1});
  SGD optimizer({.lr = 0.05});
  const Op step = graph.define({
      .name = "step",
      .inputs = {{"image", {8, 3, 12, 16}, at::kByte}, {"label", {8}, at::kLong}},
      .body = [&](const std::vector<Tensor>& in) -> NamedTensors {
        TowerContext tower(graph);
        const auto [image, label] = augmented(in[0], in[1]);
        const Tensor x = Conv2D("conv", image, {.filters = 4, .kernel_size = 3});
        const Tensor logits = FullyConnected("fc", x.relu(), {.units = kClasses});
        const Tensor cost = -(label * logits.log_softmax(1)).sum(1).mean();
        minimize(optimizer, cost, graph.variables().trainable());
        return {{"augmented", image}, {"cost", cost}};
      },
  });
  graph.finalize();
  Session session(graph, options);
  AugmentedOutcome outcome;
  for (int i = 0; i < kAugmentedSteps; ++i) {
    const auto generator = at::detail::createCPUGenerator(i + 1);
    const auto results =
        session.run(step, {"augmented", "cost"},
                    {{"image", at::randint(256, {8, 3, 12, 16}, generator, at::kByte)},
                     {"label", at::randint(kClasses, {8}, generator, at::kLong)}});
    outcome.images.push_back(results[0].cpu().clone());
    outcome.costs.push_back(results[1].cpu().clone());
  }
  for (const Variable& variable : graph.variables().all()) {
    outcome.weights.push_back(variable.tensor.detach().cpu().clone());
  }
  return outcome;
}

TEST_F(AugmentCudaTest, CapturedWithTheStepEqualsEager) {
  const auto outcome_of = [](ExecutorKind executor) {
    return train_augmented({.executor = executor, .deterministic = true, .fusion = Fusion::kNone});
  };
  const AugmentedOutcome eager = outcome_of(ExecutorKind::kEager);
  const AugmentedOutcome captured = outcome_of(ExecutorKind::kCudaGraph);
  for (int i = 0; i < kAugmentedSteps; ++i) {
    EXPECT_TRUE(at::equal(captured.images[i], eager.images[i])) << i;
    EXPECT_TRUE(at::equal(captured.costs[i], eager.costs[i])) << i;
  }
  for (size_t i = 0; i < eager.weights.size(); ++i) {
    EXPECT_TRUE(at::equal(captured.weights[i], eager.weights[i])) << i;
  }
  EXPECT_FALSE(at::equal(eager.images[0], eager.images[1]));
}

// What fused kernels draw is the same; numbers may be rounded otherwise.
TEST_F(AugmentCudaTest, FusedIsNearEager) {
  const AugmentedOutcome eager = train_augmented({.executor = ExecutorKind::kEager});
  const AugmentedOutcome fused = train_augmented({});
  for (int i = 0; i < kAugmentedSteps; ++i) {
    const Tensor differs = (fused.images[i] - eager.images[i]).abs() > 1e-3;
    EXPECT_LT(differs.to(at::kDouble).mean().item<double>(), 0.01) << i;
    EXPECT_NEAR(fused.costs[i].item<double>(), eager.costs[i].item<double>(), 0.01) << i;
  }
}

}  // namespace
}  // namespace tensorpack::test
