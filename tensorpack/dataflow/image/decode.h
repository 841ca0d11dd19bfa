// SPDX-License-Identifier: Apache-2.0
// Images from the bytes of their files. JPEGs are decoded by libjpeg-turbo, and only as much of
// them as is asked for; other formats by OpenCV, which also serves for JPEGs where libjpeg-turbo is
// missing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "tensorpack/imgaug/area_crop.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

enum class ImageColor : uint8_t { kRgb, kBgr, kGray };

struct DecodeOptions {
  ImageColor color = ImageColor::kRgb;
  /// Only this part of the image, which must lie inside.
  std::optional<imgaug::Rectangle> area = {};
  /// If set, the result may be smaller than the image, or the area, by 2, 4 or 8, but not than
  /// this: a JPEG of a half, a quarter or an eighth of the size takes a fraction of the time.
  std::optional<imgaug::ImageSize> at_least = {};
  /// What errors call the image: its file.
  std::string name = "the image";
  /// Larger images are refused before memory is taken for them.
  int64_t max_pixels = int64_t{1} << 27;
};

/// The pixels, uint8 [height, width, channels].
///
/// Pictures are not turned by what their EXIF data says. Throws Error that tells the name, the
/// offset and what the decoder said if the bytes are no image, cut off or damaged. What lies below
/// `area` is not looked at.
at::Tensor decode_image(std::string_view bytes, const DecodeOptions& options = {});

/// The same of a file, which is also its name.
at::Tensor read_image(const std::filesystem::path& path, DecodeOptions options = {});

}  // namespace tensorpack
