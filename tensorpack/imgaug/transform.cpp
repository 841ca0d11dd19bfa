// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/transform.h"

#include <fmt/ranges.h>

#include <memory>

#include "tensorpack/imgaug/boxes.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

at::Tensor same(const at::Tensor& tensor) { return tensor; }

void check_coords(const std::string& where, const at::Tensor& coords) {
  TP_CHECK(coords.defined() && coords.dim() == 2 && coords.size(1) == 2 &&
               at::isFloatingType(coords.scalar_type()),
           where,
           "points must be a tensor [n, 2] of (x, y), float32 or float64, but this one is {} {}.",
           coords.defined() ? c10::toString(coords.scalar_type()) : "undefined",
           coords.defined() ? fmt::format("[{}]", fmt::join(coords.sizes(), ", ")) : "");
}

}  // namespace

Transform::Transform(std::string name, Function image, Function coords)
    : name_(std::move(name)), image_(std::move(image)), coords_(std::move(coords)) {}

at::Tensor Transform::apply_image(const at::Tensor& image) const {
  check_image(name_, image);
  if (size_) {
    const ImageSize size = size_of(image);
    TP_CHECK(size == *size_, name_,
             "it was made for an image of {} x {}, and is applied to one of {} x {}. Bring images "
             "that go through the same transform to one size first.",
             size_->height, size_->width, size.height, size.width);
  }
  return image_(image);
}

Transform Transform::only_for(ImageSize size) const {
  Transform bound = *this;
  bound.size_ = size;
  return bound;
}

at::Tensor Transform::apply_coords(const at::Tensor& coords) const {
  TP_CHECK(coords_, name_,
           "it is known what this does to an image, but not to points in it. Leave it out where "
           "there are points or boxes, or say where they go (MapImage with .coords).");
  check_coords(name_, coords);
  return coords_(coords);
}

at::Tensor Transform::apply_boxes(const at::Tensor& boxes) const {
  return points_to_boxes(apply_coords(boxes_to_points(boxes)));
}

Transform identity() { return {"Identity", same, same}; }

Transform photometric(std::string name, Transform::Function image) {
  return {std::move(name), std::move(image), same};
}

Transform TransformList(std::vector<Transform> transforms) {
  auto shared = std::make_shared<const std::vector<Transform>>(std::move(transforms));
  return {"TransformList",
          [shared](at::Tensor image) {
            for (const Transform& transform : *shared) image = transform.apply_image(image);
            return image;
          },
          [shared](at::Tensor coords) {
            for (const Transform& transform : *shared) coords = transform.apply_coords(coords);
            return coords;
          }};
}

Transform operator+(Transform first, Transform second) {
  return TransformList({std::move(first), std::move(second)});
}

}  // namespace tensorpack::imgaug
