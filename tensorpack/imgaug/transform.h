// SPDX-License-Identifier: Apache-2.0
// What is done to one image, without chance: the same to every image, point and box it is applied
// to.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/imgaug/image.h"

namespace tensorpack::imgaug {

/// A function of images, and of points in them. A value: copies do the same. May be applied by
/// several threads at a time.
class Transform {
 public:
  using Function = std::function<at::Tensor(const at::Tensor&)>;

  /// `coords` maps points [n, 2] of (x, y); without it, the transform is one of images only, and
  /// throws an Error with its name when it is applied to points. The functions must not change what
  /// they are given; they may return a view of it.
  Transform(std::string name, Function image, Function coords = {});

  at::Tensor apply_image(const at::Tensor& image) const;

  /// Where points [n, 2] of (x, y), float32 or float64, go. The centre of the first pixel is at
  /// (0.5, 0.5), and (width, height) is the corner of the last one.
  at::Tensor apply_coords(const at::Tensor& coords) const;

  /// The smallest upright boxes [n, 4] of (x0, y0, x1, y1) around where the boxes go. They may
  /// reach out of the image: see clip_boxes().
  at::Tensor apply_boxes(const at::Tensor& boxes) const;

  const std::string& name() const { return name_; }

  /// The same for images of this size alone: apply_image() throws Error for another. For what was
  /// drawn from the size of an image, such as where a crop is.
  Transform only_for(ImageSize size) const;

 private:
  std::string name_;
  std::optional<ImageSize> size_ = {};  // of the only images it takes
  Function image_;
  Function coords_;
};

/// Leaves everything as it is.
Transform identity();

/// A transform that leaves points where they are.
Transform photometric(std::string name, Transform::Function image);

/// One after the other, the first first.
Transform TransformList(std::vector<Transform> transforms);
Transform operator+(Transform first, Transform second);

}  // namespace tensorpack::imgaug
