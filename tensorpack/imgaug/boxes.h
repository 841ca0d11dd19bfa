// SPDX-License-Identifier: Apache-2.0
// Boxes [n, 4] of (x0, y0, x1, y1), float32 or float64.
#pragma once

#include "tensorpack/imgaug/image.h"

namespace tensorpack::imgaug {

/// The four corners of each box: points [4n, 2], clockwise from (x0, y0).
at::Tensor boxes_to_points(const at::Tensor& boxes);

/// The smallest upright boxes [n, 4] around each four points of [4n, 2].
at::Tensor points_to_boxes(const at::Tensor& points);

/// The parts of the boxes that are in an image of this size. A box outside becomes empty: it has
/// no width or no height.
at::Tensor clip_boxes(const at::Tensor& boxes, ImageSize size);

}  // namespace tensorpack::imgaug
