// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/parallel/data_parallel.h"

void train_on(tensorpack::Devices devices);

void train() {
  train_on({0, 1});
  train_on({4});
  train_on(tensorpack::Devices::gpus({0, 1}));
  // error: Write Devices::first(n) for GPUs 0 to n - 1
  train_on(4);
}
