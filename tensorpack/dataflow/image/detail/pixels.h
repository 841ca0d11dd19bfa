// SPDX-License-Identifier: Apache-2.0
// What decoders of images have in common.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tensorpack/dataflow/image/decode.h"

namespace tensorpack::detail {

/// How decoded pixels lie in memory. A fourth byte makes pixels that are handled as a whole.
enum class PixelFormat : uint8_t { kGray, kRgb, kBgr, kRgbx, kBgrx };

constexpr int64_t bytes_per_pixel(PixelFormat format) {
  switch (format) {
    case PixelFormat::kGray:
      return 1;
    case PixelFormat::kRgb:
    case PixelFormat::kBgr:
      return 3;
    default:
      return 4;
  }
}

constexpr bool is_blue_first(PixelFormat format) {
  return format == PixelFormat::kBgr || format == PixelFormat::kBgrx;
}

/// Where encoded bytes come from, and how errors call them.
struct EncodedImage {
  std::string_view bytes;
  std::string_view name;
  int64_t max_pixels;
};

/// Reads one image: first its size, then as much as is needed.
class ImageReader {
 public:
  virtual ~ImageReader() = default;

  virtual imgaug::ImageSize size() const = 0;

  /// Prepares to decode `area`, at 1/`reduction` of its size. Returns which part of the reduced
  /// image read() will give: it contains the area, and may be larger by what decoders cannot leave
  /// out. `reduction` may become smaller, if the decoder knows no such.
  virtual imgaug::Rectangle begin(const imgaug::Rectangle& area, int& reduction,
                                  PixelFormat format) = 0;

  /// Decodes that part into rows `stride` bytes apart. Once, after begin().
  virtual void read(uint8_t* to, int64_t stride) = 0;
};

/// For any format that this build can decode.
std::unique_ptr<ImageReader> open_image(const EncodedImage& image);

/// Those of one decoder each.
std::unique_ptr<ImageReader> open_jpeg(const EncodedImage& image);
std::unique_ptr<ImageReader> open_with_opencv(const EncodedImage& image);

void check_area(const imgaug::Rectangle& area, imgaug::ImageSize size, std::string_view name);
void check_image_size(const EncodedImage& image, imgaug::ImageSize size);

/// The reduction (1, 2, 4 or 8) at which an area is still at least of that size.
int reduction_for(const imgaug::Rectangle& area, imgaug::ImageSize at_least);

/// The pixels of the reduced image that an area covers, whole or in part.
imgaug::Rectangle reduced(const imgaug::Rectangle& area, int reduction, imgaug::ImageSize image);

}  // namespace tensorpack::detail
