// SPDX-License-Identifier: Apache-2.0
// Fits a line with an installed Tensorpack C++, and checks that it was found.
#include <tensorpack/tensorpack.h>

#include <cmath>

using namespace tensorpack;  // NOLINT: an example

int main() {
  return run_main([] {
    std::vector<DataPoint> points;
    for (int i = 0; i < 8; ++i)
      points.push_back({torch::full({1}, i / 8.), torch::full({1}, i / 4.)});
    SimpleTrainer trainer;
    launch_train_with_config(
        {
            .model =
                Model{.inputs = {{"x", {-1, 1}}, {"y", {-1, 1}}},
                      .build_graph =
                          [](Tensor x, Tensor y) {
                            return (FullyConnected("line", x, {.units = 1}) - y).square().mean();
                          },
                      .optimizer = SGD({.lr = 0.5})},
            .dataflow = FromList(std::move(points)) | batch(8),
            .monitors = OwnedList<MonitorBase>(),
            .steps_per_epoch = 300,
            .max_epoch = 1,
        },
        trainer);
    const double slope = trainer.variables().at("line/W").tensor.item<double>();
    TP_CHECK(std::abs(slope - 2) < 1e-2, "consumer", "the slope is {}, not 2.", slope);
    logging::info("The line y = {:.3f} x was found.", slope);
  });
}
