// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/fashion_mnist.h"

#include <cstdlib>

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

fs::path default_dir() {
  if (const char* root = std::getenv("TENSORPACK_DATASET")) {
    const fs::path dir = fs::path(root) / "fashion-mnist";
    if (fs::exists(dir)) return dir;
  }
  return "/usr/share/datasets/fashion-mnist";
}

}  // namespace

FashionMnist::FashionMnist(std::string_view name, FashionMnistOptions options)
    : IdxImages("FashionMnist", name,
                {.dir = options.dir.empty() ? default_dir() : options.dir,
                 .where_from = "Install the data (on Debian: apt install dataset-fashion-mnist)",
                 .shuffle = options.shuffle,
                 .seed = options.seed}) {}

}  // namespace tensorpack
