// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/image.h"

#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {

void check_image(std::string_view where, const at::Tensor& image) {
  TP_CHECK(image.defined(), where, "there is no image: the tensor is undefined.");
  const auto type = image.scalar_type();
  TP_CHECK((image.dim() == 2 || image.dim() == 3) && image.numel() > 0 && image.is_cpu() &&
               (type == at::kByte || type == at::kFloat),
           where,
           "a {} tensor of shape {} on {} is no image. Images are [height, width, channels] or "
           "[height, width], uint8 or float32, on the CPU, with at least one pixel.",
           c10::toString(type), fmt::format("[{}]", fmt::join(image.sizes(), ", ")),
           image.device().str());
}

ImageSize size_of(const at::Tensor& image) {
  check_image("imgaug", image);
  return {.height = image.size(0), .width = image.size(1)};
}

int64_t channels_of(const at::Tensor& image) { return image.dim() == 2 ? 1 : image.size(2); }

}  // namespace tensorpack::imgaug
