// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/geometry.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tensorpack/imgaug/crop.h"
#include "tensorpack/imgaug/detail/opencv_codes.h"
#include "tensorpack/imgaug/mat.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

constexpr double kRadiansPerDegree = std::numbers::pi / 180;

struct Point {
  double x = 0;
  double y = 0;
};

Point middle_of(ImageSize size) {
  return {.x = 0.5 * static_cast<double>(size.width), .y = 0.5 * static_cast<double>(size.height)};
}

// Leaves `center` where it is and moves what is around it; then shifts all.
AffineMatrix around(Point center, double xx, double xy, double yx, double yy, Point shift = {}) {
  return {.xx = xx,
          .xy = xy,
          .x0 = center.x - xx * center.x - xy * center.y + shift.x,
          .yx = yx,
          .yy = yy,
          .y0 = center.y - yx * center.x - yy * center.y + shift.y};
}

// Of pixels: OpenCV has the centre of the first one at (0, 0), we have it at (0.5, 0.5).
cv::Matx23d of_pixel_centers(const AffineMatrix& m) {
  return {m.xx, m.xy, m.x0 + 0.5 * (m.xx + m.xy - 1), m.yx, m.yy, m.y0 + 0.5 * (m.yx + m.yy - 1)};
}

void check_degrees(const char* where, double max_degrees, std::optional<double> step) {
  TP_CHECK(max_degrees >= 0, where, "the largest angle must not be negative, got {} degrees.",
           max_degrees);
  if (!step) return;
  const double steps = max_degrees / *step;
  TP_CHECK(*step > 0 && std::abs(steps - std::round(steps)) < 1e-6, where,
           "{} degrees are not a multiple of the step of {} degrees.", max_degrees, *step);
}

double draw_degrees(double max_degrees, std::optional<double> step, Rng& rng) {
  if (!step) return rng.uniform(-max_degrees, max_degrees);
  const int64_t steps = std::lround(max_degrees / *step);
  return static_cast<double>(rng.between(-steps, steps)) * *step;
}

// How large an upright rectangle in a rotated image can be. See Note [Valid part].
//
// Note [Valid part]
// Seen from the rotated rectangle, the image has edges w and h, turned by an angle with cosine c
// and sine s. A part of width x and height y fits if x * c + y * s <= w and x * s + y * c <= h.
// Either both bind, which gives two equations for x and y; or, where the image is long and thin,
// only the short edge does: then the largest area has half of that edge from either term.
ImageSize valid_part(ImageSize size, double degrees) {
  const double c = std::abs(std::cos(degrees * kRadiansPerDegree));
  const double s = std::abs(std::sin(degrees * kRadiansPerDegree));
  const auto w = static_cast<double>(size.width);
  const auto h = static_cast<double>(size.height);
  const double longer = std::max(w, h);
  const double shorter = std::min(w, h);
  double x = 0;
  double y = 0;
  if (shorter <= 2 * s * c * longer) {
    x = 0.5 * shorter / (w >= h ? s : c);
    y = 0.5 * shorter / (w >= h ? c : s);
  } else {
    const double determinant = c * c - s * s;
    x = (w * c - h * s) / determinant;
    y = (h * c - w * s) / determinant;
  }
  // Rounding errors of the formula must not cost a pixel. The same number is cut off at both sides.
  constexpr double kSlack = 1e-6;
  const auto whole = [](double edge, int64_t limit) {
    const auto floor = std::clamp<int64_t>(static_cast<int64_t>(edge + kSlack), 1, limit);
    return (limit - floor) % 2 == 0 || floor == 1 ? floor : floor - 1;
  };
  return {.height = whole(y, size.height), .width = whole(x, size.width)};
}

void check_probability(const char* where, double probability) {
  TP_CHECK(probability >= 0 && probability <= 1, where, "{} is no probability.", probability);
}

double share(const char* where, double value) {
  TP_CHECK(value >= 0 && value < 1, where,
           "images are shifted by a share of their size in [0, 1), got {}.", value);
  return value;
}

}  // namespace

AffineMatrix rotation_around(double x, double y, double degrees) {
  // The sine has the sign it has because y points down.
  const double cosine = std::cos(degrees * kRadiansPerDegree);
  const double sine = std::sin(degrees * kRadiansPerDegree);
  return around({.x = x, .y = y}, cosine, sine, -sine, cosine);
}

Transform WarpAffineTransform(const AffineMatrix& matrix, WarpOptions options) {
  return {
      "WarpAffine",
      [pixels = of_pixel_centers(matrix), options](const at::Tensor& image) {
        return map_mat(image, [&](const cv::Mat& in) {
          cv::Mat out;
          cv::warpAffine(in, out, pixels, in.size(), detail::opencv_code(options.interpolation),
                         detail::opencv_code(options.border),
                         cv::Scalar::all(options.border_value));
          return out;
        });
      },
      [m = matrix](const at::Tensor& coords) {
        const auto linear = at::tensor({m.xx, m.yx, m.xy, m.yy}, coords.options()).reshape({2, 2});
        return coords.matmul(linear) + at::tensor({m.x0, m.y0}, coords.options());
      }};
}

Transform FlipTransform(ImageSize size, bool horizontal) {
  const auto edge = static_cast<double>(horizontal ? size.width : size.height);
  const Transform flip = {"Flip",
                          [horizontal](const at::Tensor& image) {
                            return map_mat(image, [&](const cv::Mat& in) {
                              cv::Mat out;
                              cv::flip(in, out, horizontal ? 1 : 0);
                              return out;
                            });
                          },
                          [edge, horizontal](const at::Tensor& coords) {
                            at::Tensor mirrored = coords.clone();
                            const int64_t axis = horizontal ? 0 : 1;
                            mirrored.select(1, axis).neg_().add_(edge);
                            return mirrored;
                          }};
  return flip.only_for(size);
}

Transform TransposeTransform() {
  return {"Transpose",
          [](const at::Tensor& image) {
            return map_mat(image, [](const cv::Mat& in) {
              cv::Mat out;
              cv::transpose(in, out);
              return out;
            });
          },
          [](const at::Tensor& coords) { return coords.flip({1}); }};
}

ImageAugmentor Flip(FlipOptions options) {
  constexpr const char* kName = "Flip";
  TP_CHECK(options.horizontal != options.vertical, kName,
           "set exactly one of .horizontal and .vertical. For both, use two.");
  check_probability(kName, options.probability);
  return {kName, [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            return rng.chance(options.probability) ? FlipTransform(size, options.horizontal)
                                                   : identity().only_for(size);
          }};
}

ImageAugmentor Transpose(TransposeOptions options) {
  check_probability("Transpose", options.probability);
  return {"Transpose", [options](const at::Tensor&, Rng& rng) {
            return rng.chance(options.probability) ? TransposeTransform() : identity();
          }};
}

ImageAugmentor Shift(ShiftOptions options) {
  (void)share("Shift", options.horizontal);
  (void)share("Shift", options.vertical);
  return {"Shift", [options](const at::Tensor& image, Rng& rng) {
            const auto draw = [&](double share, int64_t edge) {
              const double most = share * static_cast<double>(edge);
              return std::round(rng.uniform(-most, most));
            };
            const ImageSize size = size_of(image);
            const double dx = draw(options.horizontal, size.width);
            const double dy = draw(options.vertical, size.height);
            return WarpAffineTransform({.x0 = dx, .y0 = dy},
                                       {.interpolation = Interpolation::kNearest,
                                        .border = options.border,
                                        .border_value = options.border_value})
                .only_for(size);
          }};
}

ImageAugmentor Rotation(RotationOptions options) {
  check_degrees("Rotation", options.max_degrees, options.step_degrees);
  return {"Rotation", [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            const auto draw = [&](int64_t edge) {
              return static_cast<double>(edge) *
                     rng.uniform(options.center.low, options.center.high);
            };
            const double x = draw(size.width);
            const double y = draw(size.height);
            const double degrees = draw_degrees(options.max_degrees, options.step_degrees, rng);
            return WarpAffineTransform(rotation_around(x, y, degrees),
                                       {.interpolation = options.interpolation,
                                        .border = options.border,
                                        .border_value = options.border_value})
                .only_for(size);
          }};
}

ImageAugmentor RotationAndCropValid(RotationAndCropValidOptions options) {
  check_degrees("RotationAndCropValid", options.max_degrees, options.step_degrees);
  return {"RotationAndCropValid", [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            const double degrees = draw_degrees(options.max_degrees, options.step_degrees, rng);
            const ImageSize part = valid_part(size, degrees);
            const auto [x, y] = middle_of(size);
            return WarpAffineTransform(rotation_around(x, y, degrees),
                                       {.interpolation = options.interpolation})
                       .only_for(size) +
                   CropTransform({.left = (size.width - part.width) / 2,
                                  .top = (size.height - part.height) / 2,
                                  .width = part.width,
                                  .height = part.height});
          }};
}

ImageAugmentor Affine(AffineOptions options) {
  constexpr const char* kName = "Affine";
  TP_CHECK(options.scale.low > 0 && options.scale.low <= options.scale.high, kName,
           "scales must be positive, but the range is {} to {}.", options.scale.low,
           options.scale.high);
  (void)share(kName, options.translate_horizontal);
  (void)share(kName, options.translate_vertical);
  check_degrees(kName, options.max_degrees, {});
  TP_CHECK(options.max_shear_degrees >= 0 && options.max_shear_degrees < 90, kName,
           "shear must be in [0, 90) degrees, got {}.", options.max_shear_degrees);
  return {kName, [options](const at::Tensor& image, Rng& rng) {
            const ImageSize size = size_of(image);
            const double scale = rng.uniform(options.scale.low, options.scale.high);
            const auto draw = [&](double share, int64_t edge) {
              return static_cast<double>(edge) * rng.uniform(-share, share);
            };
            const double dx = draw(options.translate_horizontal, size.width);
            const double dy = draw(options.translate_vertical, size.height);
            const double angle = draw_degrees(options.max_degrees, {}, rng) * kRadiansPerDegree;
            const double shear =
                std::tan(draw_degrees(options.max_shear_degrees, {}, rng) * kRadiansPerDegree);
            const double c = scale * std::cos(angle);
            const double s = scale * std::sin(angle);
            // Rotation behind a shear of (x, y) to (x + shear * y, y).
            const AffineMatrix matrix =
                around(middle_of(size), c, c * shear + s, -s, c - s * shear, {.x = dx, .y = dy});
            return WarpAffineTransform(matrix, {.interpolation = options.interpolation,
                                                .border = options.border,
                                                .border_value = options.border_value})
                .only_for(size);
          }};
}

}  // namespace tensorpack::imgaug
