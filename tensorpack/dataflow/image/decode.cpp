// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/decode.h"

#include <ATen/EmptyTensor.h>

#include <cstring>

#include "tensorpack/dataflow/image/detail/pixels.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

detail::PixelFormat format_of(ImageColor color) {
  switch (color) {
    case ImageColor::kBgr:
      return detail::PixelFormat::kBgr;
    case ImageColor::kGray:
      return detail::PixelFormat::kGray;
    default:
      return detail::PixelFormat::kRgb;
  }
}

}  // namespace

void detail::check_area(const imgaug::Rectangle& area, imgaug::ImageSize size,
                        std::string_view name) {
  const bool is_inside = area.left >= 0 && area.top >= 0 && area.width > 0 && area.height > 0 &&
                         area.width <= size.width && area.left <= size.width - area.width &&
                         area.height <= size.height && area.top <= size.height - area.height;
  TP_CHECK(is_inside, "decode_image",
           "the area of {} x {} pixels at ({}, {}) is not inside {}, which has {} x {}. Choose one "
           "that is.",
           area.width, area.height, area.left, area.top, name, size.width, size.height);
}

std::unique_ptr<detail::ImageReader> detail::open_image(const EncodedImage& image) {
  return image.bytes.starts_with("\xff\xd8") ? open_jpeg(image) : open_with_opencv(image);
}

void detail::check_image_size(const EncodedImage& image, imgaug::ImageSize size) {
  TP_CHECK(
      size.width > 0 && size.height > 0 && size.width <= image.max_pixels / size.height,
      "decode_image",
      "{} claims to have {} x {} pixels, and {} are allowed. Check the file, or raise the limit "
      "with {{.max_pixels = ...}}.",
      image.name, size.width, size.height, image.max_pixels);
}

int detail::reduction_for(const imgaug::Rectangle& area, imgaug::ImageSize at_least) {
  int reduction = 8;
  while (reduction > 1 &&
         (area.width < at_least.width * reduction || area.height < at_least.height * reduction)) {
    reduction /= 2;
  }
  return reduction;
}

imgaug::Rectangle detail::reduced(const imgaug::Rectangle& area, int reduction,
                                  imgaug::ImageSize image) {
  const auto up = [&](int64_t value) { return (value + reduction - 1) / reduction; };
  const int64_t x = area.left / reduction;
  const int64_t y = area.top / reduction;
  return {.left = x,
          .top = y,
          .width = std::min(up(area.left + area.width), up(image.width)) - x,
          .height = std::min(up(area.top + area.height), up(image.height)) - y};
}

at::Tensor decode_image(std::string_view bytes, const DecodeOptions& options) {
  const auto reader =
      detail::open_image({.bytes = bytes, .name = options.name, .max_pixels = options.max_pixels});
  const imgaug::ImageSize size = reader->size();
  const imgaug::Rectangle area =
      options.area.value_or(imgaug::Rectangle{.width = size.width, .height = size.height});
  detail::check_area(area, size, options.name);
  const detail::PixelFormat format = format_of(options.color);
  const int64_t channels = detail::bytes_per_pixel(format);
  int reduction = options.at_least ? detail::reduction_for(area, *options.at_least) : 1;
  const imgaug::Rectangle part = reader->begin(area, reduction, format);
  const imgaug::Rectangle wanted = detail::reduced(area, reduction, size);

  const auto empty = [&](const imgaug::Rectangle& pixels) {
    return at::Tensor(at::detail::empty_cpu({pixels.height, pixels.width, channels}, at::kByte));
  };
  at::Tensor decoded = empty(part);
  auto* from = static_cast<uint8_t*>(decoded.data_ptr());
  reader->read(from, part.width * channels);
  if (part == wanted) return decoded;

  at::Tensor image = empty(wanted);
  auto* to = static_cast<uint8_t*>(image.data_ptr());
  from += ((wanted.top - part.top) * part.width + wanted.left - part.left) * channels;
  for (int64_t y = 0; y < wanted.height; ++y) {
    std::memcpy(to, from, wanted.width * channels);
    to += wanted.width * channels;
    from += part.width * channels;
  }
  return image;
}

at::Tensor read_image(const std::filesystem::path& path, DecodeOptions options) {
  options.name = fmt::format("'{}'", path.string());
  return decode_image(read_file(path), options);
}

}  // namespace tensorpack
