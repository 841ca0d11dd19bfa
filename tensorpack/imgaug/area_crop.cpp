// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/area_crop.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

void check_options(const AreaCropOptions& options) {
  const auto& [area, aspect_ratio] = options;
  TP_CHECK(area.low > 0 && area.low <= area.high && area.high <= 1, "random_area_crop",
           "the share of the area must be in (0, 1], but the range is {} to {}.", area.low,
           area.high);
  TP_CHECK(aspect_ratio.low > 0 && aspect_ratio.low <= aspect_ratio.high, "random_area_crop",
           "aspect ratios must be positive, but the range is {} to {}.", aspect_ratio.low,
           aspect_ratio.high);
}

}  // namespace

Rectangle random_area_crop(ImageSize size, const AreaCropOptions& options, Rng& rng) {
  check_options(options);
  TP_CHECK(size.height > 0 && size.width > 0, "random_area_crop",
           "an image of {} x {} pixels has no parts.", size.height, size.width);
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const double area = static_cast<double>(size.height * size.width) *
                        rng.uniform(options.area.low, options.area.high);
    const double ratio = rng.uniform(options.aspect_ratio.low, options.aspect_ratio.high);
    int64_t width = std::lround(std::sqrt(area * ratio));
    int64_t height = std::lround(std::sqrt(area / ratio));
    if (rng.chance(0.5)) std::swap(width, height);
    if (width == 0 || height == 0 || width > size.width || height > size.height) continue;
    return {.left = rng.between(0, size.width - width),
            .top = rng.between(0, size.height - height),
            .width = width,
            .height = height};
  }
  return central_square(size);
}

Rectangle central_square(ImageSize size) {
  const int64_t edge = std::min(size.height, size.width);
  return {.left = (size.width - edge) / 2,
          .top = (size.height - edge) / 2,
          .width = edge,
          .height = edge};
}

at::Tensor crop(const at::Tensor& image, const Rectangle& rectangle) {
  const ImageSize size = size_of(image);
  const auto& [left, top, width, height] = rectangle;
  TP_CHECK(left >= 0 && top >= 0 && width > 0 && height > 0 && left + width <= size.width &&
               top + height <= size.height,
           "crop", "{} x {} pixels at column {}, row {} are not in an image of {} x {}.", height,
           width, left, top, size.height, size.width);
  return image.narrow(0, top, height).narrow(1, left, width);
}

}  // namespace tensorpack::imgaug
