// SPDX-License-Identifier: Apache-2.0
// What a person sees of a training, and how it is steered: summaries, schedules, a callback and a
// monitor of one's own.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <string>

#include "examples/command_line.h"
#include "tensorpack/tensorpack.h"

namespace {

using namespace tensorpack;

Tensor classifier(const Tensor& image, const Tensor& label) {
  add_text("model", "Two convolutions and a **linear** layer.");
  add_image_summary("input", image.unsqueeze(1) * 255);
  ArgScope scope(Conv2DOptions{.kernel_size = 3, .activation = torch::relu});
  Tensor l = Conv2D("conv0", image.unsqueeze(1) * 2 - 1, {.filters = 16});
  l = MaxPooling("pool0", l, 2);
  l = MaxPooling("pool1", Conv2D("conv1", l, {.filters = 16}), 2);
  add_activation_summary("conv1", l);
  const Tensor logits = FullyConnected("linear", l.flatten(1), {.units = 10});
  const Tensor accuracy = named("accuracy", (logits.argmax(1) == label).to(torch::kFloat32).mean());
  const Tensor cost = named("cost", torch::cross_entropy_loss(logits, label));
  add_moving_summary(cost, accuracy);
  add_param_summary({{".*/W", {SummaryType::kHistogram, SummaryType::kRms}}});
  return cost;
}

// Fetches a tensor along with every step, and reports the largest after each epoch.
class LargestCost final : public Callback {
 public:
  void before_epoch() override { largest_ = 0; }
  RunArgs before_run(RunContext&) override { return {.fetches = {"cost"}}; }
  void after_run(RunContext&, const FetchedValues& values) override {
    largest_ = std::max(largest_, values[0].item<double>());
  }
  void trigger() override { trainer().monitors().put_scalar("largest_cost", largest_); }

 private:
  double largest_ = 0;
};

// A monitor in ten lines: a Markdown table of one scalar.
class MarkdownTable final : public MonitorBase {
 public:
  explicit MarkdownTable(std::string name) : name_(std::move(name)) {}
  void process_scalar(const std::string& name, double value, const LoopState& loop) override {
    if (name == name_) rows_ += fmt::format("| {} | {:.4f} |\n", loop.epoch_num, value);
  }
  void after_train(const LoopState&) override {
    fmt::print("| epoch | {} |\n|---|---|\n{}", name_, rows_);
  }

 private:
  std::string name_;
  std::string rows_;
};

OwnedList<MonitorBase> monitors() {
  OwnedList<MonitorBase> monitors = default_monitors();
  monitors.add(CSVWriter());
  monitors.add(MarkdownTable("validation_accuracy"));
  return monitors;
}

OwnedList<Callback> callbacks(int64_t epochs) {
  return {
      ModelSaver(),
      InferenceRunner(FashionMnist("test") | batch(500), {ScalarStats({"accuracy", "cost"})}),
      MaxSaver("validation_accuracy"),
      EarlyStopping({.stat_name = "validation_cost", .patience = 3}),
      // Rises for an epoch, then falls.
      ScheduledHyperParamSetter(
          "learning_rate",
          schedule::warm_up(schedule::cosine({.from = 0.05, .length = static_cast<double>(epochs)}),
                            {.length = 1, .from = 0.01})),
      LargestCost(),
      ThroughputTracker({.samples_per_step = 64}),
      EstimatedTimeLeft(),
      GraphProfiler(),
      InjectShell(),
  };
}

void train(int64_t epochs, int64_t steps, const std::string& logdir) {
  set_global_seed(1);
  set_logger_dir(logdir, LogDirAction::kBackup);
  launch_train_with_config(
      {
          .model = Model{.inputs = {{"image", {-1, 28, 28}}, {"label", {-1}, torch::kLong}},
                         .build_graph = classifier,
                         .optimizer = SGD({.lr = 0.01, .momentum = 0.9})},
          .dataflow = FashionMnist("train") | shuffle(10'000) | batch(64),
          .callbacks = callbacks(epochs),
          .monitors = monitors(),
          .steps_per_epoch = steps,
          .max_epoch = epochs,
      },
      SimpleTrainer());
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 5;
  int64_t steps = 900;
  std::string logdir = "train_log/watch_and_steer";
  CLI::App app("Trains a small network on Fashion-MNIST with all there is to look at.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--steps", steps, "Steps per epoch")->check(CLI::PositiveNumber);
  app.add_option("--logdir", logdir, "Where numbers and the log go");
  return run_example(app, argc, argv, [&] { train(epochs, steps, logdir); });
}
