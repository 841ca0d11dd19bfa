// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/dataset/svhn.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tensorpack/dataflow/format/mat.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

SVHNDigit::SVHNDigit(std::string_view name, const SVHNDigitOptions& options) {
  TP_CHECK(name == "train" || name == "test" || name == "extra", "SVHNDigit",
           "there is no set '{}'. {}", name, did_you_mean(name, {"train", "test", "extra"}));
  const std::filesystem::path dir = options.dir.empty() ? dataset_path("svhn_data") : options.dir;
  const std::filesystem::path path = dir / (std::string(name) + "_32x32.mat");
  TP_CHECK(std::filesystem::exists(path), "SVHNDigit",
           "there is no '{}'. Get the data set (format 2, cropped digits), or say where it is with "
           "{{.dir = \"...\"}} or the environment variable TENSORPACK_DATASET.",
           path.string());
  NamedTensors arrays = read_mat(path);
  const at::Tensor x = arrays["X"];
  const at::Tensor y = arrays["y"];
  TP_CHECK(x.defined() && y.defined() && x.dim() == 4 && x.size(0) == 32 && x.size(1) == 32 &&
               x.size(2) == 3 && x.scalar_type() == at::kByte && y.numel() == x.size(3),
           "SVHNDigit",
           "'{}' has no array X of bytes [32, 32, 3, n] with as many labels y. Get the file again.",
           path.string());
  images_ = x.permute({3, 0, 1, 2}).contiguous();
  labels_ = y.reshape({-1}).to(at::kLong);
  TP_CHECK(labels_.numel() == 0 ||
               (labels_.min().item<int64_t>() >= 0 && labels_.max().item<int64_t>() <= 10),
           "SVHNDigit", "'{}' has labels that are not in 0..10. Get the file again.",
           path.string());
  labels_.masked_fill_(labels_ == 10, 0);
  set_order({images_.size(0), options.shuffle.value_or(name != "test"), options.seed});
}

DataPoint SVHNDigit::row(int64_t number) const {
  return {images_.select(0, number), labels_.select(0, number)};
}

DataPoint SVHNDigit::stack_rows(const std::vector<int64_t>& numbers) const {
  return {detail::copy_rows(images_, numbers), detail::copy_rows(labels_, numbers)};
}

at::Tensor SVHNDigit::per_pixel_mean() const {
  return images_.to(at::kDouble).mean(0).to(at::kFloat);
}

}  // namespace tensorpack
