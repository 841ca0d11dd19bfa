// SPDX-License-Identifier: Apache-2.0
// Whether fused kernels learn as well as libtorch's operators.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>

#include "benchmarks/bench.h"

namespace tensorpack::bench {

/// One training on Fashion-MNIST.
struct AccuracyRun {
  std::string model = {};  ///< "fashion_mnist", the example's, or "resnet18"
  uint64_t seed = 1;
  bool fused = true;
};

/// `gpu/<model>_accuracy`: the accuracy on the validation set, fused, less that without fusion, in
/// points, as means over three seeds. All trainings run at once.
void add_accuracy_benchmarks(Suite& suite);

/// Trains, writes what it reached, and leaves at the end of the input.
void serve_accuracy(const AccuracyRun& run, c10::Device device);

}  // namespace tensorpack::bench
