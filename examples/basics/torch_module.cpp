// SPDX-License-Identifier: Apache-2.0
// A module of torch::nn, trained as part of the graph.
#include <torch/nn.h>

#include <CLI/CLI.hpp>

#include "examples/command_line.h"
#include "tensorpack/tensorpack.h"

namespace {

using namespace tensorpack;

Tensor classifier(torch::nn::Sequential net, const Tensor& image, const Tensor& label) {
  const Tensor logits = adopt("net", net)->forward(image.flatten(1));
  named("accuracy", accuracy(logits, label));
  return named("cost", torch::cross_entropy_loss(logits, label));
}

void train(int64_t epochs, int64_t steps) {
  set_global_seed(1);
  const torch::nn::Sequential net(torch::nn::Linear(784, 64), torch::nn::ReLU(),
                                  torch::nn::Dropout(0.2), torch::nn::Linear(64, 10));
  SimpleTrainer trainer;
  trainer.setup_graph(
      {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
      QueueInput(FashionMnist("train") | batch(64)),
      [net](const Tensor& image, const Tensor& label) { return classifier(net, image, label); },
      Adam({.lr = 1e-3}));
  trainer.train_with_defaults({
      .callbacks = {InferenceRunner(FashionMnist("test") | batch(500),
                                    {ScalarStats({"accuracy", "cost"})})},
      .monitors = OwnedList<MonitorBase>(ScalarPrinter()),
      .steps_per_epoch = steps,
      .max_epoch = epochs,
  });
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 3;
  int64_t steps = 900;
  CLI::App app("Trains a torch::nn module on Fashion-MNIST.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--steps", steps, "Steps per epoch")->check(CLI::PositiveNumber);
  return run_example(app, argc, argv, [&] { train(epochs, steps); });
}
