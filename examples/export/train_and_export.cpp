// SPDX-License-Identifier: Apache-2.0
// Trains a small network to tell points inside of a circle from those outside, and exports it: as a
// file of our own, for run_exported_model, and as ONNX, for other runtimes.
#include <CLI/CLI.hpp>

#include "examples/command_line.h"
#include "tensorpack/tensorpack.h"

using namespace tensorpack;  // NOLINT: an example

namespace {

Model circle_model() {
  return {
      .inputs = {{"point", {-1, 2}}, {"is_inside", {-1}}},
      .build_graph =
          [](Tensor point, Tensor is_inside) {
            Tensor l = FullyConnected("fc0", point, {.units = 32, .activation = torch::tanh});
            l = FullyConnected("fc1", l, {.units = 32, .activation = torch::tanh});
            const Tensor logit = FullyConnected("fc2", l, {.units = 1}).squeeze(1);
            named("probability", torch::sigmoid(logit));
            return named("cost", torch::binary_cross_entropy_with_logits(logit, is_inside));
          },
      .optimizer = Adam({.lr = 1e-2}),
  };
}

DataPoint with_label(const DataPoint& p) {
  return {p[0], (p[0].square().sum() < 0.5).to(torch::kFloat)};
}

void train_and_export(int64_t epochs, const std::string& directory) {
  const auto logdir = set_logger_dir(directory);
  set_global_seed(1);
  launch_train_with_config(
      {
          .model = circle_model(),
          .dataflow =
              FakeData({{.shape = {2}, .low = -1}}, {.size = 4096}) | map(with_label) | batch(64),
          .callbacks = {ModelSaver()},
          .max_epoch = epochs,
      },
      SimpleTrainer());

  const auto trained = [&]() -> PredictConfig {
    return {
        .inputs = circle_model().inputs,
        .tower_func = circle_model().build_graph,
        .session_init = SaverRestore(logdir),
        .output_names = {"probability"},
    };
  };
  export_model(trained(), logdir / "circle.tpx");
  export_onnx(trained(), logdir / "circle.onnx");
  logging::info("Exported to {} and circle.onnx.", (logdir / "circle.tpx").string());
}

}  // namespace

int main(int argc, char** argv) {
  int64_t epochs = 5;
  std::string logdir = "train_log/circle";
  CLI::App app("Trains a small network and exports it.");
  app.option_defaults()->always_capture_default();
  app.add_option("--epochs", epochs, "Epochs to train")->check(CLI::PositiveNumber);
  app.add_option("--logdir", logdir, "Where checkpoints and the exported files go");
  return run_example(app, argc, argv, [&] { train_and_export(epochs, logdir); });
}
