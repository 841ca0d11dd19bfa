// SPDX-License-Identifier: Apache-2.0
// What an image is here: a tensor [height, width, channels] or [height, width] on the CPU, of uint8
// (0..255) or float32. Which channel is which colour is up to who reads the image; functions that
// need to know say so.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::imgaug {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

/// Throws Error, which begins with `[where]`, unless the tensor is an image with at least one
/// pixel.
void check_image(std::string_view where, const at::Tensor& image);

/// The size of an image. Throws Error if it is none.
ImageSize size_of(const at::Tensor& image);

/// 1 for images of two dimensions.
int64_t channels_of(const at::Tensor& image);

}  // namespace tensorpack::imgaug
