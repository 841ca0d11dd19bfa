// SPDX-License-Identifier: Apache-2.0
// A model made of layers: two pictures of stripes go through the same network, which learns to tell
// whether the stripes run in the same direction. docs/tutorial/layers.md explains it.
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

// [N, 8, 8] to [N, 4]. Called twice; one set of weights.
Tensor features(const Tensor& image) {
  VariableScope scope("features", Reuse::kAuto);
  ArgScope convolutions(Conv2DOptions{.kernel_size = 3, .use_bias = false});
  Tensor l = Conv2D("conv0", image.unsqueeze(1), {.filters = 8});  // variable features/conv0/W
  l = Conv2D("conv1", BNReLU("bn0", l), {.filters = 8});
  l = GlobalAvgPooling("pool", torch::relu(l));
  return FullyConnected("fc", l, {.units = 4, .kernel_init = init::normal(0.1)});
}

Tensor cost(const Tensor& left, const Tensor& right, const Tensor& is_same) {
  const Tensor distance = (features(left) - features(right)).square().sum(1);
  const Tensor logits = get_variable("margin", {}, init::ones()) - distance;
  const Tensor correct = (logits > 0) == (is_same > 0.5);
  named("accuracy", correct.to(torch::kFloat).mean());
  const Tensor penalty = regularize_cost(".*/W", l2_regularizer(1e-4));
  return named("cost", torch::binary_cross_entropy_with_logits(logits, is_same) + penalty);
}

Model model() {
  return {
      .inputs = {{"left", {-1, 8, 8}}, {"right", {-1, 8, 8}}, {"is_same", {-1}}},
      .build_graph = cost,
      .optimizer = apply_grad_processors(Momentum(0.05),
                                         {GlobalNormClip(5), ScaleGradient({{"margin", 0.1}})}),
  };
}

// Two pictures, and whether their stripes run in the same direction.
DataPoint draw_pair(const DataPoint& noise, Rng& rng) {
  const Tensor stripes = torch::arange(8).remainder(2).to(torch::kFloat).expand({8, 8});
  const bool is_left_upright = rng.below(2) == 1;
  const bool is_right_upright = rng.below(2) == 1;
  return {noise[0] + (is_left_upright ? stripes : stripes.t()),
          noise[1] + (is_right_upright ? stripes : stripes.t()),
          torch::tensor(is_left_upright == is_right_upright ? 1.F : 0.F)};
}

DataFlowPtr data(int64_t size) {
  return FakeData({{.shape = {8, 8}}, {.shape = {8, 8}}}, {.size = size}) | map(draw_pair) |
         batch(32);
}

}  // namespace

int main() {
  return run_main([] {
    set_global_seed(1);
    launch_train_with_config(
        {
            .model = model(),
            .dataflow = data(3200),
            .callbacks = {InferenceRunner(data(320), {ScalarStats({"accuracy", "cost"})}),
                          ScheduledHyperParamSetter("learning_rate", {{0, 0.05}, {2, 0.005}})},
            .monitors = OwnedList<MonitorBase>(ScalarPrinter()),
            .max_epoch = 3,
        },
        SimpleTrainer());
  });
}
