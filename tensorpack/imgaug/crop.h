// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/imgaug/area_crop.h"
#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/sampling.h"

namespace tensorpack::imgaug {

struct CropOptions {
  int64_t height = 0;
  int64_t width = 0;
};

/// A part of this size at a random place. Images must be at least as large.
ImageAugmentor RandomCrop(CropOptions options);

/// The middle. Images must be at least as large.
ImageAugmentor CenterCrop(CropOptions options);

struct RandomCropRandomShapeOptions {
  int64_t min_height = 1;
  int64_t min_width = 1;
  int64_t max_height = 0;  ///< 0: that of the image
  int64_t max_width = 0;
};

/// A part of random size at a random place.
ImageAugmentor RandomCropRandomShape(RandomCropRandomShapeOptions options);

struct GoogleNetRandomCropAndResizeOptions {
  int64_t size = 224;  ///< edge of the square that comes out
  AreaCropOptions crop = {};
  Interpolation interpolation = Interpolation::kLinear;
};

/// A part of random area and shape (see random_area_crop()), resized to a square.
ImageAugmentor GoogleNetRandomCropAndResize(GoogleNetRandomCropAndResizeOptions options = {});

struct RandomCutoutOptions {
  IntRange height = {0, 0};
  IntRange width = {0, 0};
  double fill = 0;
};

/// Paints over a rectangle of random size at a random place, which is all of the image if it is
/// larger. Points stay.
ImageAugmentor RandomCutout(RandomCutoutOptions options);

/// Takes the rectangle.
Transform CropTransform(const Rectangle& rectangle);

}  // namespace tensorpack::imgaug
