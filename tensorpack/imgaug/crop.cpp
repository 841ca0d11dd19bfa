// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/crop.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/imgaug/resize.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

void check_crop(const char* where, const CropOptions& options) {
  TP_CHECK(options.height > 0 && options.width > 0, where,
           "{} x {} pixels are nothing. Set .height and .width.", options.height, options.width);
}

void check_fits(const char* where, ImageSize image, int64_t height, int64_t width) {
  TP_CHECK(height <= image.height && width <= image.width, where,
           "an image of {} x {} has no part of {} x {}. Resize it before.", image.height,
           image.width, height, width);
}

Rectangle random_place(ImageSize image, int64_t height, int64_t width, Rng& rng) {
  return {.left = rng.between(0, image.width - width),
          .top = rng.between(0, image.height - height),
          .width = width,
          .height = height};
}

int64_t draw_edge(const char* where, int64_t min, int64_t max, int64_t image, Rng& rng) {
  const int64_t most = max == 0 ? image : std::min(max, image);
  TP_CHECK(min <= most, where, "an edge of {} pixels has no part of {} or more. Resize it before.",
           image, min);
  return rng.between(min, most);
}

void check_cutout(const IntRange& edge) {
  TP_CHECK(edge.low >= 0 && edge.low <= edge.high && edge.high > 0, "RandomCutout",
           "edges must be positive, but the range is {} to {}. Set .height and .width.", edge.low,
           edge.high);
}

}  // namespace

Transform CropTransform(const Rectangle& rectangle) {
  return {"Crop", [rectangle](const at::Tensor& image) { return crop(image, rectangle); },
          [rectangle](const at::Tensor& coords) {
            return coords - at::tensor({static_cast<double>(rectangle.left),
                                        static_cast<double>(rectangle.top)},
                                       coords.options());
          }};
}

ImageAugmentor RandomCrop(CropOptions options) {
  constexpr const char* kName = "RandomCrop";
  check_crop(kName, options);
  return {
      kName, [options](const at::Tensor& image, Rng& rng) {
        const ImageSize size = size_of(image);
        check_fits(kName, size, options.height, options.width);
        return CropTransform(random_place(size, options.height, options.width, rng)).only_for(size);
      }};
}

ImageAugmentor CenterCrop(CropOptions options) {
  constexpr const char* kName = "CenterCrop";
  check_crop(kName, options);
  return {kName, [options](const at::Tensor& image, Rng&) {
            const ImageSize size = size_of(image);
            check_fits(kName, size, options.height, options.width);
            return CropTransform({.left = (size.width - options.width) / 2,
                                  .top = (size.height - options.height) / 2,
                                  .width = options.width,
                                  .height = options.height})
                .only_for(size);
          }};
}

ImageAugmentor RandomCropRandomShape(RandomCropRandomShapeOptions options) {
  constexpr const char* kName = "RandomCropRandomShape";
  const auto& [min_height, min_width, max_height, max_width] = options;
  TP_CHECK(min_height > 0 && min_width > 0 && (max_height == 0 || max_height >= min_height) &&
               (max_width == 0 || max_width >= min_width),
           kName, "there are no sizes from {} x {} to {} x {}.", min_height, min_width, max_height,
           max_width);
  return {kName, [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            const int64_t height =
                draw_edge(kName, options.min_height, options.max_height, size.height, rng);
            const int64_t width =
                draw_edge(kName, options.min_width, options.max_width, size.width, rng);
            return CropTransform(random_place(size, height, width, rng)).only_for(size);
          }};
}

ImageAugmentor GoogleNetRandomCropAndResize(GoogleNetRandomCropAndResizeOptions options) {
  constexpr const char* kName = "GoogleNetRandomCropAndResize";
  TP_CHECK(options.size > 0, kName, "the size must be positive, got {}.", options.size);
  Rng unused(0, 0);
  (void)random_area_crop({.height = 1, .width = 1}, options.crop, unused);  // checks the ranges
  return {kName, [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            const Rectangle part = random_area_crop(size, options.crop, rng);
            return CropTransform(part).only_for(size) +
                   ResizeTransform({.height = part.height, .width = part.width},
                                   {.height = options.size, .width = options.size},
                                   options.interpolation);
          }};
}

ImageAugmentor RandomCutout(RandomCutoutOptions options) {
  check_cutout(options.height);
  check_cutout(options.width);
  return {"RandomCutout", [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            const int64_t height =
                std::min(rng.between(options.height.low, options.height.high), size.height);
            const int64_t width =
                std::min(rng.between(options.width.low, options.width.high), size.width);
            const Rectangle hole = random_place(size, height, width, rng);
            return photometric("RandomCutout",
                               [hole, fill = options.fill](const at::Tensor& x) {
                                 at::Tensor painted = x.clone();
                                 painted.narrow(0, hole.top, hole.height)
                                     .narrow(1, hole.left, hole.width)
                                     .fill_(fill);
                                 return painted;
                               })
                .only_for(size);
          }};
}

}  // namespace tensorpack::imgaug
