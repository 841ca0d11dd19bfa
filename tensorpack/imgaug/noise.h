// SPDX-License-Identifier: Apache-2.0
// Augmentors that make images worse. Points stay where they are.
#pragma once

#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/ranges.h"

namespace tensorpack::imgaug {

struct JpegNoiseOptions {
  IntRange quality = {40, 100};
};

/// What JPEG of a random quality leaves of the image, which has one channel or three.
ImageAugmentor JpegNoise(JpegNoiseOptions options = {});

struct GaussianNoiseOptions {
  double sigma = 1;
  bool clip = true;  ///< to 0..255, as bytes always are
};

/// Adds a normally distributed number to every value.
ImageAugmentor GaussianNoise(GaussianNoiseOptions options = {});

struct SaltPepperNoiseOptions {
  double white = 0.05;
  double black = 0.05;
};

/// Makes this share of the values 255, and this one 0.
ImageAugmentor SaltPepperNoise(SaltPepperNoiseOptions options = {});

}  // namespace tensorpack::imgaug
