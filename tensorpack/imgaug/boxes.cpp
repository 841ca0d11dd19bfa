// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/boxes.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

void check_boxes(const char* where, const at::Tensor& boxes) {
  TP_CHECK(boxes.defined() && boxes.dim() == 2 && boxes.size(1) == 4 &&
               at::isFloatingType(boxes.scalar_type()),
           where,
           "boxes must be a tensor [n, 4] of (x0, y0, x1, y1), float32 or float64, but this one "
           "is {} {}.",
           boxes.defined() ? c10::toString(boxes.scalar_type()) : "undefined",
           boxes.defined() ? fmt::format("[{}]", fmt::join(boxes.sizes(), ", ")) : "");
}

}  // namespace

at::Tensor boxes_to_points(const at::Tensor& boxes) {
  check_boxes("boxes_to_points", boxes);
  const auto corners = at::tensor({0, 1, 2, 1, 2, 3, 0, 3}, at::kLong);
  return boxes.index_select(1, corners).reshape({-1, 2});
}

at::Tensor points_to_boxes(const at::Tensor& points) {
  TP_CHECK(points.dim() == 2 && points.size(1) == 2 && points.size(0) % 4 == 0, "points_to_boxes",
           "points must be a tensor [4n, 2], but this one is [{}].",
           fmt::join(points.sizes(), ", "));
  const auto corners = points.reshape({-1, 4, 2});
  return at::cat({corners.amin(1), corners.amax(1)}, 1);
}

at::Tensor clip_boxes(const at::Tensor& boxes, ImageSize size) {
  check_boxes("clip_boxes", boxes);
  const auto limits = at::tensor({size.width, size.height, size.width, size.height}, at::kLong);
  return boxes.clamp_min(0).minimum(limits.to(boxes.scalar_type()));
}

}  // namespace tensorpack::imgaug
