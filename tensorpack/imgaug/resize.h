// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/ranges.h"
#include "tensorpack/imgaug/sampling.h"

namespace tensorpack::imgaug {

struct ResizeOptions {
  int64_t height = 0;
  int64_t width = 0;
  Interpolation interpolation = Interpolation::kLinear;
};

/// To a fixed size.
ImageAugmentor Resize(ResizeOptions options);

struct ResizeShortestEdgeOptions {
  int64_t size = 0;
  Interpolation interpolation = Interpolation::kLinear;
};

/// Such that the shorter edge has `size` pixels; the aspect ratio is kept.
ImageAugmentor ResizeShortestEdge(ResizeShortestEdgeOptions options);

struct RandomResizeOptions {
  /// From what the new width is drawn, and the new height.
  Range x = {1, 1};
  std::optional<Range> y = {};  ///< as `x` when empty
  /// Whether the ranges are in pixels; otherwise they are factors.
  bool in_pixels = false;
  /// No image becomes smaller than this.
  int64_t min_height = 0;
  int64_t min_width = 0;
  /// By which share the aspect ratio may change. With 0 it is kept, and `y` is not drawn from.
  double aspect_ratio_threshold = 0.15;
  Interpolation interpolation = Interpolation::kLinear;
};

/// To a random size. If fifty draws all change the aspect ratio too much, the image is left as it
/// is, and the log says so.
ImageAugmentor RandomResize(RandomResizeOptions options);

/// Makes images of the size `from`, and no others, into ones of the size `to`.
Transform ResizeTransform(ImageSize from, ImageSize to,
                          Interpolation interpolation = Interpolation::kLinear);

}  // namespace tensorpack::imgaug
