// SPDX-License-Identifier: Apache-2.0
// Augmentors made of many, with hardly anything to choose.
#pragma once

#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/sampling.h"

namespace tensorpack::imgaug {

struct ColorJitterOptions {
  /// The factors are in [1 - x, 1 + x], and not negative; 0 leaves it out.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;
  /// By how much of the circle of colours, to either side; at most 0.5.
  double hue = 0;
  bool rgb = true;
};

/// Changes brightness, contrast, saturation and hue, in a random order. Saturation and hue need
/// three channels.
ImageAugmentor ColorJitter(ColorJitterOptions options);

struct RandAugmentOptions {
  int64_t operations = 2;  ///< how many, one after the other
  int64_t magnitude = 9;   ///< how strong: 0 up to, but not, `magnitudes`
  int64_t magnitudes = 31;
  Interpolation interpolation = Interpolation::kNearest;
  double fill = 0;
  bool rgb = true;
};

/// RandAugment (Cubuk et al., 2019): operations drawn from fourteen, all of one magnitude.
ImageAugmentor RandAugment(RandAugmentOptions options = {});

struct TrivialAugmentOptions {
  int64_t magnitudes = 31;
  Interpolation interpolation = Interpolation::kNearest;
  double fill = 0;
  bool rgb = true;
};

/// TrivialAugment (Müller and Hutter, 2021), with the wide space: one operation of fourteen, of a
/// random magnitude.
ImageAugmentor TrivialAugment(TrivialAugmentOptions options = {});

}  // namespace tensorpack::imgaug
