// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/auto_augment.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "tensorpack/imgaug/detail/tone.h"
#include "tensorpack/imgaug/geometry.h"
#include "tensorpack/imgaug/meta.h"
#include "tensorpack/imgaug/photometric.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

enum class Operation : uint8_t {
  kIdentity,
  kShearX,
  kShearY,
  kTranslateX,
  kTranslateY,
  kRotate,
  kBrightness,
  kColor,
  kContrast,
  kSharpness,
  kPosterize,
  kSolarize,
  kAutoContrast,
  kEqualize,
};
constexpr int kOperations = 14;

// The strongest of each operation.
struct Strengths {
  double shear = 0;
  double translate_share = 0;   // of the edge ...
  double translate_pixels = 0;  // ... or this
  double degrees = 0;
  double enhance = 0;  // factors are 1 - enhance or 1 + enhance
  int dropped_bits = 0;
};

constexpr Strengths kRandAugment = {
    .shear = 0.3, .translate_share = 150.0 / 331, .degrees = 30, .enhance = 0.9, .dropped_bits = 4};
constexpr Strengths kTrivialAugment = {
    .shear = 0.99, .translate_pixels = 32, .degrees = 135, .enhance = 0.99, .dropped_bits = 6};

struct Look {
  WarpOptions warp;
  bool rgb = true;
};

Transform brightness(double factor, const at::Tensor& image, Rng& rng) {
  return BrightnessScale({.range = {factor, factor}}).get_transform(image, rng);
}

// Images without colours have a mean all the same.
Transform contrast(double factor, bool rgb, const at::Tensor& image, Rng& rng) {
  const auto colors = channels_of(image) == 3 ? std::optional(rgb) : std::nullopt;
  return Contrast({.range = {factor, factor}, .rgb = colors}).get_transform(image, rng);
}

Transform saturation(double factor, bool rgb, const at::Tensor& image) {
  return channels_of(image) == 3 ? SaturationTransform(factor, {.rgb = rgb}) : identity();
}

Transform rotated(double degrees, const at::Tensor& image, const Look& look) {
  const ImageSize size = size_of(image);
  return WarpAffineTransform(rotation_around(0.5 * static_cast<double>(size.width),
                                             0.5 * static_cast<double>(size.height), degrees),
                             look.warp)
      .only_for(size);
}

// An operation with a share of its full strength, in 0..1; `sign` counts where it has two
// directions. Shears are about the upper left corner, as in the papers' code.
Transform make(Operation operation, double share, double sign, const Strengths& strengths,
               const Look& look, const at::Tensor& image, Rng& rng) {
  const double shear = sign * share * strengths.shear;
  const auto shift = [&](int64_t edge) {
    const double most =
        strengths.translate_share * static_cast<double>(edge) + strengths.translate_pixels;
    return sign * std::trunc(share * most);
  };
  const double factor = 1 + sign * share * strengths.enhance;
  switch (operation) {
    case Operation::kIdentity:
      return identity();
    case Operation::kShearX:
      return WarpAffineTransform({.xy = shear}, look.warp).only_for(size_of(image));
    case Operation::kShearY:
      return WarpAffineTransform({.yx = shear}, look.warp).only_for(size_of(image));
    case Operation::kTranslateX:
      return WarpAffineTransform({.x0 = shift(image.size(1))}, look.warp).only_for(size_of(image));
    case Operation::kTranslateY:
      return WarpAffineTransform({.y0 = shift(image.size(0))}, look.warp).only_for(size_of(image));
    case Operation::kRotate:
      return rotated(sign * share * strengths.degrees, image, look);
    case Operation::kBrightness:
      return brightness(factor, image, rng);
    case Operation::kColor:
      return saturation(factor, look.rgb, image);
    case Operation::kContrast:
      return contrast(factor, look.rgb, image, rng);
    case Operation::kSharpness:
      return photometric("Sharpness",
                         [factor](const at::Tensor& x) { return detail::sharpen(x, factor); });
    case Operation::kPosterize: {
      const int bits = 8 - static_cast<int>(std::lround(share * strengths.dropped_bits));
      return photometric("Posterize",
                         [bits](const at::Tensor& x) { return detail::posterize(x, bits); });
    }
    case Operation::kSolarize:
      return photometric("Solarize", [threshold = 255 * (1 - share)](const at::Tensor& x) {
        return detail::solarize(x, threshold);
      });
    case Operation::kAutoContrast:
      return photometric("AutoContrast", detail::auto_contrast);
    case Operation::kEqualize:
      return photometric("Equalize", detail::equalize);
  }
  return identity();
}

Transform draw(double share, const Strengths& strengths, const Look& look, const at::Tensor& image,
               Rng& rng) {
  const auto operation = static_cast<Operation>(rng.below(kOperations));
  const double sign = rng.chance(0.5) ? 1 : -1;
  return make(operation, share, sign, strengths, look, image, rng);
}

double share_of(int64_t magnitude, int64_t magnitudes) {
  return static_cast<double>(magnitude) / static_cast<double>(magnitudes - 1);
}

Look look_of(Interpolation interpolation, double fill, bool rgb) {
  return {
      .warp = {.interpolation = interpolation, .border = Border::kConstant, .border_value = fill},
      .rgb = rgb};
}

void check_jitter(const char* what, double value, double most) {
  TP_CHECK(value >= 0 && value <= most, "ColorJitter", "{} must be in [0, {}], got {}.", what, most,
           value);
}

}  // namespace

ImageAugmentor ColorJitter(ColorJitterOptions options) {
  constexpr double kAnything = 1e6;
  check_jitter("brightness", options.brightness, kAnything);
  check_jitter("contrast", options.contrast, kAnything);
  check_jitter("saturation", options.saturation, kAnything);
  check_jitter("hue", options.hue, 0.5);
  const auto factors = [](double by) { return Range{std::max(0.0, 1 - by), 1 + by}; };
  std::vector<ImageAugmentor> changes;
  if (options.brightness > 0) {
    changes.push_back(BrightnessScale({.range = factors(options.brightness)}));
  }
  if (options.contrast > 0) {
    changes.emplace_back("Contrast", [range = factors(options.contrast), rgb = options.rgb](
                                         const at::Tensor& image, Rng& rng) {
      return contrast(rng.uniform(range.low, range.high), rgb, image, rng);
    });
  }
  if (options.saturation > 0) {
    changes.emplace_back("Saturation", [range = factors(options.saturation), rgb = options.rgb](
                                           const at::Tensor&, Rng& rng) {
      return SaturationTransform(rng.uniform(range.low, range.high), {.rgb = rgb});
    });
  }
  if (options.hue > 0) {
    changes.push_back(Hue({.range = {-180 * options.hue, 180 * options.hue}, .rgb = options.rgb}));
  }
  return RandomOrderAug(std::move(changes));
}

ImageAugmentor RandAugment(RandAugmentOptions options) {
  TP_CHECK(options.operations >= 0 && options.magnitudes > 1 && options.magnitude >= 0 &&
               options.magnitude < options.magnitudes,
           "RandAugment", "{} operations of magnitude {} of {} are not possible.",
           options.operations, options.magnitude, options.magnitudes);
  return {"RandAugment", [options](const at::Tensor& image, Rng& rng) {
            const Look look = look_of(options.interpolation, options.fill, options.rgb);
            const double share = share_of(options.magnitude, options.magnitudes);
            std::vector<Transform> drawn;
            for (int64_t i = 0; i < options.operations; ++i) {
              drawn.push_back(draw(share, kRandAugment, look, image, rng));
            }
            return TransformList(std::move(drawn));
          }};
}

ImageAugmentor TrivialAugment(TrivialAugmentOptions options) {
  TP_CHECK(options.magnitudes > 1, "TrivialAugment",
           "there must be at least two magnitudes to choose from, got {}.", options.magnitudes);
  return {"TrivialAugment", [options](const at::Tensor& image, Rng& rng) {
            const Look look = look_of(options.interpolation, options.fill, options.rgb);
            const double share =
                share_of(rng.between(0, options.magnitudes - 1), options.magnitudes);
            return draw(share, kTrivialAugment, look, image, rng);
          }};
}

}  // namespace tensorpack::imgaug
