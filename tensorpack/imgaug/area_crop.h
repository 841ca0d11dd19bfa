// SPDX-License-Identifier: Apache-2.0
// Which part of an image a random crop takes: known from the size of the image alone, so that a
// decoder need not make the rest.
#pragma once

#include "tensorpack/imgaug/image.h"
#include "tensorpack/imgaug/ranges.h"
#include "tensorpack/utils/rng.h"

namespace tensorpack::imgaug {

/// Pixels left..left+width-1 of the rows top..top+height-1.
struct Rectangle {
  int64_t left = 0;
  int64_t top = 0;
  int64_t width = 0;
  int64_t height = 0;
  bool operator==(const Rectangle&) const = default;
};

struct AreaCropOptions {
  /// The share of the image's area that is taken.
  Range area = {0.08, 1};
  /// Width by height, or height by width: each is as likely.
  Range aspect_ratio = {3. / 4, 4. / 3};
};

/// A rectangle of random area, shape and place in an image, as GoogLeNet was trained on. If ten
/// tries give none that fits, the largest square in the middle.
Rectangle random_area_crop(ImageSize size, const AreaCropOptions& options, Rng& rng);

/// The largest square, in the middle.
Rectangle central_square(ImageSize size);

/// The part of an image, a view.
at::Tensor crop(const at::Tensor& image, const Rectangle& rectangle);

}  // namespace tensorpack::imgaug
