// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/paste.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

at::Tensor background_for(const at::Tensor& image, const PasteOptions& options) {
  std::vector<int64_t> sizes = image.sizes().vec();
  sizes[0] = options.height;
  sizes[1] = options.width;
  if (!options.background) return at::full(sizes, options.fill, image.options());
  const ImageSize size = {.height = options.height, .width = options.width};
  const at::Tensor background = options.background(image, size);
  TP_CHECK(background.sizes() == at::IntArrayRef(sizes) &&
               background.scalar_type() == image.scalar_type(),
           "Paste", "the background must be {} [{}], as the image, but it is {} [{}].",
           c10::toString(image.scalar_type()), fmt::join(sizes, ", "),
           c10::toString(background.scalar_type()), fmt::join(background.sizes(), ", "));
  return background.clone(at::MemoryFormat::Contiguous);
}

Transform paste_at(int64_t left, int64_t top, const PasteOptions& options) {
  return {"Paste",
          [left, top, options](const at::Tensor& image) {
            at::Tensor result = background_for(image, options);
            result.narrow(0, top, image.size(0)).narrow(1, left, image.size(1)).copy_(image);
            return result;
          },
          [left, top](const at::Tensor& coords) {
            return coords + at::tensor({static_cast<double>(left), static_cast<double>(top)},
                                       coords.options());
          }};
}

// What is left of the background in each direction.
ImageSize room_for(const char* where, const at::Tensor& image, const PasteOptions& options) {
  const ImageSize size = size_of(image);
  TP_CHECK(size.height <= options.height && size.width <= options.width, where,
           "an image of {} x {} is larger than the background of {} x {}.", size.height, size.width,
           options.height, options.width);
  return {.height = options.height - size.height, .width = options.width - size.width};
}

void check_options(const char* where, const PasteOptions& options) {
  TP_CHECK(options.height > 0 && options.width > 0, where,
           "a background of {} x {} pixels is nothing. Set .height and .width.", options.height,
           options.width);
}

}  // namespace

ImageAugmentor CenterPaste(PasteOptions options) {
  check_options("CenterPaste", options);
  return {"CenterPaste", [options = std::move(options)](const at::Tensor& image, Rng&) {
            const ImageSize room = room_for("CenterPaste", image, options);
            return paste_at(room.width / 2, room.height / 2, options).only_for(size_of(image));
          }};
}

ImageAugmentor RandomPaste(PasteOptions options) {
  check_options("RandomPaste", options);
  return {"RandomPaste", [options = std::move(options)](const at::Tensor& image, Rng& rng) {
            const ImageSize room = room_for("RandomPaste", image, options);
            const int64_t left = rng.between(0, room.width);
            const int64_t top = rng.between(0, room.height);
            return paste_at(left, top, options).only_for(size_of(image));
          }};
}

}  // namespace tensorpack::imgaug
