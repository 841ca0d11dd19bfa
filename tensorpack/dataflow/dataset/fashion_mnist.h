// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string_view>

#include "tensorpack/dataflow/detail/idx_images.h"

namespace tensorpack {

struct FashionMnistOptions {
  /// Where the four files are. By default `$TENSORPACK_DATASET/fashion-mnist` if that exists, else
  /// where Debian's package dataset-fashion-mnist puts them.
  std::filesystem::path dir = {};
  /// Whether each pass comes in a new random order; by default the training set does.
  std::optional<bool> shuffle = {};
  std::optional<uint64_t> seed = {};
};

/// The Fashion-MNIST dataset: {image: float32 [28, 28] in 0..1, label: int64 scalar in 0..9}.
class FashionMnist final : public IdxImages {
 public:
  /// Reads the 60000 images of "train" or the 10000 of "test" into memory.
  explicit FashionMnist(std::string_view name, FashionMnistOptions options = {});
};

}  // namespace tensorpack
