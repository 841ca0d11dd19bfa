// SPDX-License-Identifier: Apache-2.0
// A program needs no other include.
#include "tensorpack/tensorpack.h"

using namespace tensorpack;

Model model() {
  return {
      .inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
      .build_graph =
          [](Tensor image, Tensor label) {
            const Tensor l = Conv2D("conv0", image.unsqueeze(1), {.filters = 8, .kernel_size = 3});
            const Tensor logits = FullyConnected("fc", torch::relu(l), {.units = 10});
            return named("cost", torch::cross_entropy_loss(logits, label));
          },
      .optimizer = Adam({.lr = 1e-3}),
  };
}

void train() {
  launch_train_with_config(
      TrainConfig{
          .model = model(),
          .dataflow = FashionMnist("train") | shuffle(1000) | batch(32),
          .callbacks = {ModelSaver(), InferenceRunner(FashionMnist("test") | batch(256),
                                                      {ScalarStats({"cost"})})},
          .session = {.executor_of = {{"InferenceTower", ExecutorKind::kEager}},
                      .fusion = Fusion::kExact,
                      .recompute = Recompute::kNever},
      },
      SyncMultiGPUTrainerReplicated(Devices::gpus({0, 1})));
}
