// SPDX-License-Identifier: Apache-2.0
// Augmentation of the images of a dataflow: functions for map(), parallel_map() and
// map_and_batch(), which give each datapoint random numbers of its own. The sequence does not
// depend on the number of threads.
//
//   flow | parallel_map(AugmentImageComponent(augmentor), {.on_error = OnError::kSkip})
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/imgaug/augmentor.h"

namespace tensorpack {

using AugmentFunction = std::function<DataPoint(DataPoint, Rng&)>;

/// Augments the image at place `index`.
AugmentFunction AugmentImageComponent(imgaug::ImageAugmentor augmentor, size_t index = 0);

struct AugmentImageCoordinatesOptions {
  size_t image = 0;
  size_t coords = 1;
};

/// Augments an image, and points [n, 2] of (x, y) with it.
AugmentFunction AugmentImageCoordinates(imgaug::ImageAugmentor augmentor,
                                        AugmentImageCoordinatesOptions options = {});

struct AugmentImageComponentsOptions {
  /// The first one is what transforms are drawn for; all get the same.
  std::vector<size_t> images = {0, 1};
  std::vector<size_t> coords = {};  ///< points [n, 2] of (x, y)
  std::vector<size_t> boxes = {};   ///< [n, 4] of (x0, y0, x1, y1), clipped to the first image
};

/// Augments several images in the same way, for example an image and a mask of its pixels, and
/// points and boxes with them.
AugmentFunction AugmentImageComponents(imgaug::ImageAugmentor augmentor,
                                       AugmentImageComponentsOptions options = {});

}  // namespace tensorpack
