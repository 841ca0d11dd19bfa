// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/resize.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "tensorpack/imgaug/detail/opencv_codes.h"
#include "tensorpack/imgaug/mat.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::imgaug {
namespace {

// One draw of RandomResize.
ImageSize draw_size(ImageSize from, const RandomResizeOptions& options, Rng& rng) {
  const auto height = static_cast<double>(from.height);
  const auto width = static_cast<double>(from.width);
  const auto draw = [&](Range range, double edge, int64_t minimum) {
    const double drawn = rng.uniform(range.low, range.high) * (options.in_pixels ? 1 : edge);
    return std::max(drawn, static_cast<double>(minimum));
  };
  const double x = draw(options.x, width, options.min_width);
  const double y = options.aspect_ratio_threshold == 0
                       ? x * height / width
                       : draw(options.y.value_or(options.x), height, options.min_height);
  return {.height = std::max<int64_t>(std::lround(y), 1),
          .width = std::max<int64_t>(std::lround(x), 1)};
}

double change_of_aspect_ratio(ImageSize from, ImageSize to) {
  const double before = static_cast<double>(from.width) / static_cast<double>(from.height);
  const double after = static_cast<double>(to.width) / static_cast<double>(to.height);
  return std::abs(after - before) / before;
}

void check_range(const char* where, const Range& range) {
  TP_CHECK(range.low > 0 && range.low <= range.high, where,
           "sizes must be positive, but the range is {} to {}.", range.low, range.high);
}

}  // namespace

Transform ResizeTransform(ImageSize from, ImageSize to, Interpolation interpolation) {
  TP_CHECK(to.height > 0 && to.width > 0, "Resize",
           "an image cannot have {} x {} pixels. Set .height and .width.", to.height, to.width);
  const double scale_x = static_cast<double>(to.width) / static_cast<double>(from.width);
  const double scale_y = static_cast<double>(to.height) / static_cast<double>(from.height);
  const Transform resize = {
      "Resize",
      [to, interpolation](const at::Tensor& image) {
        if (size_of(image) == to) return image;
        return map_mat(image, [&](const cv::Mat& in) {
          cv::Mat out;
          cv::resize(in, out, cv::Size(static_cast<int>(to.width), static_cast<int>(to.height)), 0,
                     0, detail::opencv_code(interpolation));
          return out;
        });
      },
      [scale_x, scale_y](const at::Tensor& coords) {
        return coords * at::tensor({scale_x, scale_y}, coords.options());
      }};
  return resize.only_for(from);
}

ImageAugmentor Resize(ResizeOptions options) {
  const ImageSize to = {.height = options.height, .width = options.width};
  (void)ResizeTransform(to, to);  // says what is wrong with the size now
  return {"Resize", [to, options](const at::Tensor& image, Rng&) {
            return ResizeTransform(size_of(image), to, options.interpolation);
          }};
}

ImageAugmentor ResizeShortestEdge(ResizeShortestEdgeOptions options) {
  TP_CHECK(options.size > 0, "ResizeShortestEdge", "the size must be positive, got {}.",
           options.size);
  return {"ResizeShortestEdge", [options](const at::Tensor& image, Rng&) {
            const ImageSize from = size_of(image);
            const double scale = static_cast<double>(options.size) /
                                 static_cast<double>(std::min(from.height, from.width));
            const auto scaled = [&](int64_t edge) {
              return std::lround(scale * static_cast<double>(edge));
            };
            return ResizeTransform(from,
                                   {.height = scaled(from.height), .width = scaled(from.width)},
                                   options.interpolation);
          }};
}

ImageAugmentor RandomResize(RandomResizeOptions options) {
  constexpr const char* kName = "RandomResize";
  check_range(kName, options.x);
  if (options.y) check_range(kName, *options.y);
  TP_CHECK(options.aspect_ratio_threshold >= 0, kName,
           "the aspect ratio cannot change by {}. Set .aspect_ratio_threshold to 0 to keep it.",
           options.aspect_ratio_threshold);
  return {
      kName, [options](const at::Tensor& image, Rng& rng) {
        constexpr int kTries = 50;
        // What rounding to whole pixels changes of the ratio is not held against it.
        const bool keeps_ratio = options.aspect_ratio_threshold == 0;
        const ImageSize from = size_of(image);
        for (int i = 0; i < kTries; ++i) {
          const ImageSize to = draw_size(from, options, rng);
          if (keeps_ratio || change_of_aspect_ratio(from, to) <= options.aspect_ratio_threshold) {
            return ResizeTransform(from, to, options.interpolation);
          }
        }
        logging::warning(
            "[RandomResize] {} draws for an image of {} x {} changed its aspect ratio by more "
            "than {}: it is left as it is.",
            kTries, from.height, from.width, options.aspect_ratio_threshold);
        return identity().only_for(from);
      }};
}

}  // namespace tensorpack::imgaug
