// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/idx_images.h"

#include <ATen/EmptyTensor.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <string>

#include "tensorpack/dataflow/dataset/idx.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMnistSide = 28;
constexpr int64_t kMnistPixels = kMnistSide * kMnistSide;

// The files of the set called `name` begin with this.
std::string file_prefix(std::string_view where, std::string_view name) {
  if (name == "train") return "train";
  TP_CHECK(name == "test", where, "there is no set '{}'. {}", name,
           did_you_mean(name, {"train", "test"}));
  return "t10k";
}

at::Tensor read(std::string_view where, const fs::path& dir, const std::string& name,
                const std::string& where_from) {
  for (const fs::path& path : {dir / name, dir / (name + ".gz")}) {
    if (fs::exists(path)) return read_idx(path);
  }
  throw make_error(where,
                   "neither '{0}' nor '{0}.gz' is in '{1}'. {2}, or say where it is with "
                   "{{.dir = \"...\"}} or the environment variable TENSORPACK_DATASET.",
                   name, dir.string(), where_from);
}

}  // namespace

IdxImages::IdxImages(std::string_view where, std::string_view name, const Source& source)
    : images_(read(where, source.dir, file_prefix(where, name) + "-images-idx3-ubyte",
                   source.where_from)),
      labels_(read(where, source.dir, file_prefix(where, name) + "-labels-idx1-ubyte",
                   source.where_from)) {
  TP_CHECK(images_.dim() == 3 && images_.size(1) == kMnistSide && images_.size(2) == kMnistSide,
           where, "the images in '{}' have shape [{}], not [N, 28, 28]. Check the files.",
           source.dir.string(), fmt::join(images_.sizes(), ", "));
  TP_CHECK(labels_.dim() == 1 && labels_.size(0) == images_.size(0), where,
           "labels have the shape [{}] for {} in '{}'. Check the files.",
           fmt::join(labels_.sizes(), ", "), counted(images_.size(0), "image"),
           source.dir.string());
  set_order({images_.size(0), source.shuffle.value_or(name == "train"), source.seed});
}

void IdxImages::copy_image(int64_t index, float* to) const {
  const uint8_t* pixels = static_cast<const uint8_t*>(images_.data_ptr()) + index * kMnistPixels;
  for (int64_t i = 0; i < kMnistPixels; ++i) to[i] = static_cast<float>(pixels[i]) / 255.0F;
}

int64_t IdxImages::label(int64_t index) const {
  return static_cast<const uint8_t*>(labels_.data_ptr())[index];
}

// By hand: going through operators would take ten times as long for tensors this small.
DataPoint IdxImages::row(int64_t number) const {
  at::Tensor image(at::detail::empty_cpu({kMnistSide, kMnistSide}, at::kFloat));
  copy_image(number, static_cast<float*>(image.data_ptr()));
  at::Tensor label(at::detail::empty_cpu({}, at::kLong));
  *static_cast<int64_t*>(label.data_ptr()) = this->label(number);
  return {std::move(image), std::move(label)};
}

DataPoint IdxImages::stack_rows(const std::vector<int64_t>& numbers) const {
  const int64_t rows = std::ssize(numbers);
  at::Tensor images(at::detail::empty_cpu({rows, kMnistSide, kMnistSide}, at::kFloat));
  at::Tensor labels(at::detail::empty_cpu({rows}, at::kLong));
  for (int64_t i = 0; i < rows; ++i) {
    copy_image(numbers[i], static_cast<float*>(images.data_ptr()) + i * kMnistPixels);
    static_cast<int64_t*>(labels.data_ptr())[i] = label(numbers[i]);
  }
  return {std::move(images), std::move(labels)};
}

}  // namespace tensorpack
