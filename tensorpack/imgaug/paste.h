// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/imgaug/augmentor.h"

namespace tensorpack::imgaug {

struct PasteOptions {
  /// Of the background, which must be at least as large as the image.
  int64_t height = 0;
  int64_t width = 0;
  double fill = 0;
  /// Makes the background for an image, of this size; by default it is filled with `fill`.
  std::function<at::Tensor(const at::Tensor& image, ImageSize size)> background = {};
};

/// Puts the image into the middle of a background.
ImageAugmentor CenterPaste(PasteOptions options);

/// Puts the image onto a background, at a random place.
ImageAugmentor RandomPaste(PasteOptions options);

}  // namespace tensorpack::imgaug
