// SPDX-License-Identifier: Apache-2.0
// Trains a small convolutional network on Fashion-MNIST, with validation and checkpoints. On
// several towers with --towers, as several processes when started by `tp launch`, mpirun, torchrun
// or srun.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "examples/command_line.h"
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

struct Flags {
  int64_t epochs = 8;
  int64_t batch = 128;
  double lr = 1e-3;
  std::string device = "cpu";
  int towers = 1;
  bool bf16 = false;
  std::string logdir = "train_log/fashion_mnist";
  std::string data;
  uint64_t seed = 1;
  bool resume = false;
};

Model fashion_model(double lr) {
  return {
      .inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
      .build_graph =
          [](Tensor image, Tensor label) {
            Tensor l = image.unsqueeze(1) * 2 - 1;
            ArgScope scope(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
            l = Conv2D("conv0", l, {.filters = 32});
            l = MaxPooling("pool0", l, 2);
            l = Conv2D("conv1", l, {.filters = 64});
            l = MaxPooling("pool1", l, 2);
            l = FullyConnected("fc0", l, {.units = 128, .activation = torch::relu});
            l = Dropout("dropout", l, {.rate = 0.3});
            Tensor logits = FullyConnected("fc1", l, {.units = 10});
            Tensor correct = (logits.argmax(1) == label).to(torch::kFloat32);
            Tensor accuracy = named("accuracy", correct.mean());
            named("incorrect_vector", 1 - correct);
            Tensor cost = named("cost", torch::cross_entropy_loss(logits.to(torch::kFloat), label));
            add_moving_summary(accuracy, cost);
            return cost;
          },
      .optimizer = Adam({.lr = lr}),
  };
}

DistributedTrainer make_trainer(const Flags& flags) {
  const torch::Device device(flags.device);
  DistributedOptions options{.graph = {.device = device}};
  if (flags.towers > 1) options.devices = std::vector(static_cast<size_t>(flags.towers), device);
  return DistributedTrainer(options);
}

void train(const Flags& flags) {
  const auto logdir =
      set_logger_dir(flags.logdir, flags.resume ? LogDirAction::kKeep : LogDirAction::kBackup);
  set_global_seed(flags.seed);  // the same run every time
  TrainConfig config{
      .model = fashion_model(flags.lr),
      .data = QueueInput(FashionMnist("train", {.dir = flags.data}) | shard() | batch(flags.batch)),
      .callbacks =
          {
              ModelSaver({.max_to_keep = 3}),
              InferenceRunner(
                  FashionMnist("test", {.dir = flags.data}) | batch(256, {.remainder = true}),
                  {ScalarStats({"accuracy", "cost"}), ClassificationError()}),
          },
      .session = {.precision = flags.bf16 ? Precision::kBFloat16 : Precision::kFloat32},
      .max_epoch = flags.epochs,
  };
  if (flags.resume) config = AutoResumeTrainConfig(std::move(config));
  launch_train_with_config(std::move(config), make_trainer(flags));
  fmt::print(
      "The log directory {} holds the last checkpoints (model-*.safetensors), every epoch's "
      "numbers (stats.json) and the log (log.log).\n",
      logdir.string());
  const auto report = logdir / "report.html";  // of several processes, the first has it
  if (exists(report)) fmt::print("To look at the training, open {}\n", report.string());
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains a small convolutional network on Fashion-MNIST.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", flags.epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--batch", flags.batch, "Images per step")->check(CLI::PositiveNumber);
  app.add_option("--lr", flags.lr, "Learning rate")->check(CLI::NonNegativeNumber);
  app.add_option("--device", flags.device, "Where to train: cpu, cuda, cuda:1 ...");
  app.add_option("--towers", flags.towers, "Towers on that device, each with a batch of its own")
      ->check(CLI::PositiveNumber);
  app.add_flag("--bf16", flags.bf16, "Compute in bfloat16");
  app.add_option("--logdir", flags.logdir, "Where checkpoints, numbers and the log go");
  app.add_option("--data", flags.data,
                 "Directory of the data set; by default that of Debian's dataset-fashion-mnist");
  app.add_option("--seed", flags.seed, "Of the order of the data");
  app.add_flag("--resume", flags.resume, "Go on from the last checkpoint in the log directory");
  return run_example(app, argc, argv, [&] {
    try {
      train(flags);
    } catch (const Interrupted&) {
      fmt::print("To go on from the last checkpoint, add: --resume --logdir {}\n", flags.logdir);
      throw;
    }
  });
}
