// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/fashion_mnist.h"

#include <ATen/EmptyTensor.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>

#include "tensorpack/dataflow/dataset/idx.h"
#include "tensorpack/dataflow/rng.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSide = 28;
constexpr int64_t kPixels = kSide * kSide;

fs::path default_dir() {
  if (const char* root = std::getenv("TENSORPACK_DATASET")) {
    const fs::path dir = fs::path(root) / "fashion-mnist";
    if (fs::exists(dir)) return dir;
  }
  return "/usr/share/datasets/fashion-mnist";
}

// The files of the set called `name` begin with this.
std::string file_prefix(std::string_view name) {
  if (name == "train") return "train";
  TP_CHECK(name == "test", "FashionMnist", "there is no set '{}'. {}", name,
           did_you_mean(name, {"train", "test"}));
  return "t10k";
}

at::Tensor read(const fs::path& dir, const std::string& name) {
  for (const fs::path& path : {dir / name, dir / (name + ".gz")}) {
    if (fs::exists(path)) return read_idx(path);
  }
  throw make_error(
      "FashionMnist",
      "neither '{0}' nor '{0}.gz' is in '{1}'. Install the data (on Debian: apt install "
      "dataset-fashion-mnist), or say where it is with {{.dir = \"...\"}} or the "
      "environment variable TENSORPACK_DATASET.",
      name, dir.string());
}

// What each pixel becomes: divisions would take most of the time of a datapoint.
constexpr std::array<float, 256> kScaled = [] {
  std::array<float, 256> scaled{};
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] = static_cast<float>(i) / 255.0F;
  return scaled;
}();

}  // namespace

FashionMnist::FashionMnist(std::string_view name, FashionMnistOptions options)
    : shuffle_(options.shuffle.value_or(name == "train")), seed_(seed_or_next(options.seed)) {
  const std::string prefix = file_prefix(name);
  const fs::path dir = options.dir.empty() ? default_dir() : options.dir;
  images_ = read(dir, prefix + "-images-idx3-ubyte");
  labels_ = read(dir, prefix + "-labels-idx1-ubyte");
  TP_CHECK(images_.dim() == 3 && images_.size(1) == kSide && images_.size(2) == kSide,
           "FashionMnist", "the images in '{}' have shape [{}], not [N, 28, 28]. Check the files.",
           dir.string(), fmt::join(images_.sizes(), ", "));
  TP_CHECK(labels_.dim() == 1 && labels_.size(0) == images_.size(0), "FashionMnist",
           "there are {} images but labels of shape [{}] in '{}'. Check the files.",
           images_.size(0), fmt::join(labels_.sizes(), ", "), dir.string());
  start(0);
}

void FashionMnist::start(int64_t pass) {
  position_ = 0;
  if (shuffle_) {
    Rng rng(seed_, pass);
    order_ = random_permutation(images_.size(0), rng);
  }
}

std::optional<DataPoint> FashionMnist::next() {
  if (position_ == images_.size(0)) return std::nullopt;
  const int64_t index = shuffle_ ? order_[position_] : position_;
  ++position_;

  // By hand: going through operators would take ten times as long for tensors this small.
  at::Tensor image(at::detail::empty_cpu({kSide, kSide}, at::kFloat));
  const uint8_t* pixels = static_cast<const uint8_t*>(images_.data_ptr()) + index * kPixels;
  float* scaled = static_cast<float*>(image.data_ptr());
  for (int64_t i = 0; i < kPixels; ++i) scaled[i] = kScaled[pixels[i]];

  at::Tensor label(at::detail::empty_cpu({}, at::kLong));
  *static_cast<int64_t*>(label.data_ptr()) = static_cast<const uint8_t*>(labels_.data_ptr())[index];
  return DataPoint{std::move(image), std::move(label)};
}

int64_t FashionMnist::skip(int64_t count) {
  count = std::min(count, images_.size(0) - position_);
  position_ += count;
  return count;
}

}  // namespace tensorpack
