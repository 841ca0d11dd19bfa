// SPDX-License-Identifier: Apache-2.0
// Models, data and trainers for tests of several towers.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>

#include "examples/models/resnet.h"
#include "examples/models/transformer.h"
#include "tensorpack/tensorpack.h"

namespace tensorpack::test {

inline const GraphOptions kSeeded{.seed = 7};

/// A model on images [N, 1, 12, 12] and labels [N] of three classes.
struct Model {
  std::string name = {};
  std::function<at::Tensor(const at::Tensor& image)> logits = {};
};

inline at::Tensor mlp(const at::Tensor& image) {
  const at::Tensor l = FullyConnected("fc0", image, {.units = 16, .activation = at::tanh});
  return FullyConnected("fc1", l, {.units = 3});
}

/// Batch norm with the statistics of all towers: those of a tower would be others than those of the
/// whole batch.
inline at::Tensor lenet_with_batch_norm(const at::Tensor& image) {
  const ArgScope sync(BatchNormOptions{.sync_statistics = average_across_towers});
  at::Tensor l = BNReLU("bn1", Conv2D("conv1", image, {.filters = 4, .kernel_size = 3}));
  l = BNReLU("bn2", Conv2D("conv2", MaxPooling("pool1", l, 2), {.filters = 6, .kernel_size = 3}));
  return FullyConnected("fc", MaxPooling("pool2", l, 2), {.units = 3});
}

/// With an eighth of the filters, and in double precision: in float32 the network makes large
/// differences of small ones within a few steps, whoever trains it.
inline at::Tensor resnet18(const at::Tensor& image) {
  const ArgScope sync(BatchNormOptions{.sync_statistics = average_across_towers});
  const VariableGetterScope precise([](const auto&, VariableOptions options, const auto& next) {
    options.dtype = at::kDouble;
    return next(std::move(options));
  });
  return examples::resnet::imagenet(image.expand({-1, 3, -1, -1}).to(at::kDouble),
                                    examples::resnet::basic_block, {2, 2, 2, 2}, 3, /*width=*/8);
}

inline at::Tensor transformer(const at::Tensor& image) {
  const at::Tensor words = (image.flatten(1).slice(1, 0, 12) * 4).to(at::kLong).clamp(0, 7);
  return examples::transformer(words, {.vocabulary = 8,
                                       .context = 12,
                                       .features = 16,
                                       .heads = 2,
                                       .layers = 1,
                                       .dropout = 0})
      .mean(1)
      .slice(1, 0, 3);
}

inline TowerFunc cost_of(std::function<at::Tensor(const at::Tensor&)> logits) {
  return [logits = std::move(logits)](const at::Tensor& image, const at::Tensor& label) {
    return named("cost", at::cross_entropy_loss(logits(image), label));
  };
}

inline std::vector<TensorSpec> image_inputs() {
  return {{"image", {-1, 1, 12, 12}}, {"label", {-1}, at::kLong}};
}

/// `count` images that depend on their number alone, in batches.
inline DataFlowPtr images(int64_t batch_size, int64_t count = 64) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < count; ++i) {
    const at::Tensor image = at::sin(at::arange(144).to(at::kFloat) * (0.1 + 0.01 * (i % 7)) + i);
    points.push_back({image.reshape({1, 12, 12}).abs(), at::scalar_tensor(i % 3, at::kLong)});
  }
  return FromList(std::move(points)) | batch(batch_size);
}

using Values = std::map<std::string, at::Tensor>;

/// The variables that would be saved.
inline Values values_of(Graph& graph) {
  Values values;
  for (const Variable& variable : graph.variables().all()) {
    if (variable.is_saved()) values.emplace(variable.name, variable.tensor.detach().clone());
  }
  return values;
}

inline void expect_close(const Values& a, const Values& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    EXPECT_TRUE(at::allclose(value, b.at(name), tolerance, tolerance))
        << name << " differs by " << (value - b.at(name)).abs().max().item<double>();
  }
}

inline void expect_equal(const Values& a, const Values& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, value] : a) EXPECT_TRUE(at::equal(value, b.at(name))) << name;
}

struct TrainingOptions {
  int64_t batch_size = 4;
  int64_t steps = 50;
  std::function<Owned<Optimizer>()> optimizer = [] { return SGD({.lr = 0.05}); };
};

/// Trains for one epoch of some steps and returns what is saved.
inline Values train(SingleCostTrainer&& trainer, const TowerFunc& cost,
                    const TrainingOptions& options = {}, OwnedList<Callback> callbacks = {}) {
  trainer.setup_graph(image_inputs(), QueueInput(images(options.batch_size)), cost,
                      options.optimizer());
  trainer.train(
      {.callbacks = std::move(callbacks), .steps_per_epoch = options.steps, .max_epoch = 1});
  return values_of(trainer.graph());
}

}  // namespace tensorpack::test
