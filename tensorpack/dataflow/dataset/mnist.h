// SPDX-License-Identifier: Apache-2.0
// The MNIST data set of handwritten digits.
#pragma once

#include <filesystem>
#include <string_view>

#include "tensorpack/dataflow/detail/idx_images.h"

namespace tensorpack {

struct MnistOptions {
  /// Where the four files are, plain or compressed with gzip. By default
  /// `$TENSORPACK_DATASET/mnist`, or tensorpack_data/mnist in the home directory.
  std::filesystem::path dir = {};
  /// Whether each pass comes in a new random order; by default the training set does.
  std::optional<bool> shuffle = {};
  std::optional<uint64_t> seed = {};
};

/// {image: float32 [28, 28] in 0..1, label: int64 scalar in 0..9}.
class Mnist final : public IdxImages {
 public:
  /// Reads the 60000 images of "train" or the 10000 of "test" into memory.
  explicit Mnist(std::string_view name, MnistOptions options = {});
};

}  // namespace tensorpack
