// SPDX-License-Identifier: Apache-2.0
// Runs what train_and_export wrote. There is no model in this file: it is in the other.
#include <fmt/format.h>

#include "tensorpack/tensorpack.h"

int main(int argc, char** argv) {
  return tensorpack::run_main([&] {
    const auto model = tensorpack::load_exported_model(argc > 1 ? argv[1] : "circle.tpx");
    const torch::Tensor points = torch::tensor({0.0, 0.0, 0.4, -0.3, 0.9, 0.9}).view({3, 2});
    const torch::Tensor inside = model(points)[0];
    for (int64_t i = 0; i < points.size(0); ++i) {
      fmt::print("({:4.1f}, {:4.1f}) is inside with probability {:.3f}\n",
                 points[i][0].item<double>(), points[i][1].item<double>(),
                 inside[i].item<double>());
    }
  });
}
