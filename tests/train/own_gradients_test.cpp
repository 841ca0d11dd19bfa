// SPDX-License-Identifier: Apache-2.0
// Tower functions that differentiate by themselves.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>         // torch::autograd::grad
#include <torch/csrc/autograd/custom_function.h>  // torch::autograd::Function

#include "tensorpack/input_source/feed_input.h"
#include "tensorpack/predict/offline_predictor.h"
#include "tensorpack/train/single_cost_trainer.h"
#include "tests/support/capture.h"
#include "tests/train/linear_model.h"

namespace tensorpack {
namespace {

using at::Tensor;

// Which pixels the cost depends on, also where the model predicts.
void saliency(const Tensor& image) {
  const at::AutoGradMode with_gradients(true);
  const Tensor pixels = image.detach().requires_grad_();
  const Tensor cost = (get_variable("w", {3}) * pixels.square()).sum();
  named("saliency", torch::autograd::grad({cost}, {pixels})[0].abs());
}

TEST(OwnGradientsTest, APredictionMayDifferentiate) {
  const Tensor w = at::tensor({1.F, -2.F, 0.F});
  const OfflinePredictor predict({.inputs = {{"image", {-1, 3}}},
                                  .tower_func = saliency,
                                  .session_init = DictRestore({{"w", w}}),
                                  .output_names = {"saliency"}});
  for (const int64_t size : {2, 5}) {
    const Tensor image = at::randn({size, 3});
    EXPECT_TRUE(at::allclose(predict(image)[0], (2 * w * image).abs())) << size;
  }
}

// Rounds, and passes gradients on as if it did not.
struct RoundStraightThrough : torch::autograd::Function<RoundStraightThrough> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) { return x.round(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return gradients;
  }
};

TEST(OwnGradientsTest, ATrainedFunctionMayHaveAGradientOfItsOwn) {
  SimpleTrainer trainer;
  const auto cost = [](const Tensor& x, const Tensor& y) {
    const Tensor w = RoundStraightThrough::apply(get_variable("w", {}));
    return named("cost", (w * x - y).square().mean());
  };
  const DataPoint point{at::ones({2}), at::full({2}, 3.F)};
  trainer.setup_graph(linear_inputs(), FeedInput(FromList({point})), cost, SGD({.lr = 0.1}));
  stdout_of([&] { trainer.train({.steps_per_epoch = 40, .max_epoch = 1}); });
  EXPECT_EQ(trainer.variables().at("w").tensor.round().item<float>(), 3);
}

}  // namespace
}  // namespace tensorpack
