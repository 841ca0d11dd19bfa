// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/ranges.h"
#include "tensorpack/imgaug/sampling.h"

namespace tensorpack::imgaug {

struct FlipOptions {
  bool horizontal = false;  ///< left becomes right
  bool vertical = false;    ///< top becomes bottom
  double probability = 0.5;
};

/// Mirrors images in one direction, of which exactly one must be chosen.
ImageAugmentor Flip(FlipOptions options);

struct TransposeOptions {
  double probability = 0.5;
};

/// Makes rows of columns.
ImageAugmentor Transpose(TransposeOptions options = {});

struct ShiftOptions {
  /// Up to which share of the width and the height, to either side. In [0, 1).
  double horizontal = 0;
  double vertical = 0;
  Border border = Border::kReplicate;
  double border_value = 0;
};

/// By a whole number of pixels.
ImageAugmentor Shift(ShiftOptions options);

struct RotationOptions {
  double max_degrees = 0;  ///< to either side
  /// Where the centre may be, as a share of the width and of the height.
  Range center = {0, 1};
  /// Only multiples of this angle, if there is one; it must divide `max_degrees`.
  std::optional<double> step_degrees = {};
  Interpolation interpolation = Interpolation::kLinear;
  Border border = Border::kReplicate;
  double border_value = 0;
};

/// Around a random point, by a random angle.
ImageAugmentor Rotation(RotationOptions options);

struct RotationAndCropValidOptions {
  double max_degrees = 0;
  std::optional<double> step_degrees = {};
  Interpolation interpolation = Interpolation::kLinear;
};

/// Around the middle, and then the largest part in which every pixel is one of the image.
ImageAugmentor RotationAndCropValid(RotationAndCropValidOptions options);

struct AffineOptions {
  Range scale = {1, 1};
  /// Up to which share of the width and the height, to either side.
  double translate_horizontal = 0;
  double translate_vertical = 0;
  double max_degrees = 0;        ///< of rotation, to either side
  double max_shear_degrees = 0;  ///< of horizontal shear, to either side; less than 90
  Interpolation interpolation = Interpolation::kLinear;
  Border border = Border::kReplicate;
  double border_value = 0;
};

/// Around the middle: scales, shears, rotates and then shifts.
ImageAugmentor Affine(AffineOptions options);

/// Of points (x, y): to (xx * x + xy * y + x0, yx * x + yy * y + y0).
struct AffineMatrix {
  double xx = 1;
  double xy = 0;
  double x0 = 0;
  double yx = 0;
  double yy = 1;
  double y0 = 0;
};

/// By this angle around the point, counter-clockwise as one sees it.
AffineMatrix rotation_around(double x, double y, double degrees);

struct WarpOptions {
  Interpolation interpolation = Interpolation::kLinear;
  Border border = Border::kReplicate;
  double border_value = 0;
};

/// Moves points by the matrix, and pixels with them; images keep their size.
Transform WarpAffineTransform(const AffineMatrix& matrix, WarpOptions options = {});

/// For images of this size.
Transform FlipTransform(ImageSize size, bool horizontal);

Transform TransposeTransform();

}  // namespace tensorpack::imgaug
