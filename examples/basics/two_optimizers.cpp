// SPDX-License-Identifier: Apache-2.0
// Trains one part of a network with Adam and the other with momentum, each at its own rate: a
// trainer of one's own in ten lines.
#include "examples/command_line.h"
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

Tensor classifier(const Tensor& image, const Tensor& label) {
  Tensor l = image.flatten(1) * 2 - 1;
  {
    VariableScope scope("features");
    l = FullyConnected("fc0", l, {.units = 128, .activation = torch::relu});
    l = FullyConnected("fc1", l, {.units = 64, .activation = torch::relu});
  }
  const Tensor logits = FullyConnected("linear", l, {.units = 10});
  const Tensor cost = named("cost", torch::cross_entropy_loss(logits, label));
  const Tensor accuracy = named("accuracy", (logits.argmax(1) == label).to(torch::kFloat32).mean());
  add_moving_summary(cost, accuracy);
  return cost;
}

class TwoOptimizersTrainer final : public TowerTrainer {
 public:
  explicit TwoOptimizersTrainer(Owned<InputSource> input) {
    setup_tower({{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}}, std::move(input),
                classifier);
    const auto update = [adam = Adam({.lr = 1e-3, .scope = "features"}),
                         momentum = SGD({.lr = 0.01, .momentum = 0.9, .scope = "linear"})](
                            TowerContext& tower) mutable {
      // Both gradients first: an update changes what the other was computed from.
      const Tensor cost = tower.tensor("cost");
      const Gradients features = compute_gradients(cost, tower.trainable("^features/"));
      const Gradients linear = compute_gradients(cost, tower.trainable("^linear/"));
      torch::NoGradGuard no_grad;
      adam.apply_gradients(features);
      momentum.apply_gradients(linear);
    };
    set_train_op(define("train_op", update));
  }
};

void train(int64_t epochs, int64_t steps, const std::string& logdir) {
  set_global_seed(1);
  set_logger_dir(logdir, LogDirAction::kBackup);
  TwoOptimizersTrainer trainer(QueueInput(FashionMnist("train") | batch(64)));
  trainer.train_with_defaults({
      .callbacks = {InferenceRunner(FashionMnist("test") | batch(500),
                                    {ScalarStats({"accuracy", "cost"})})},
      .steps_per_epoch = steps,
      .max_epoch = epochs,
  });
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 5;
  int64_t steps = 900;
  std::string logdir = "train_log/two_optimizers";
  CLI::App app("Trains a network on Fashion-MNIST with two optimizers.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--steps", steps, "Steps per epoch")->check(CLI::PositiveNumber);
  app.add_option("--logdir", logdir, "Where numbers and the log go");
  return run_example(app, argc, argv, [&] { train(epochs, steps, logdir); });
}
