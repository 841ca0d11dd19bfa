// SPDX-License-Identifier: Apache-2.0
// Augmentors that change values of pixels and leave them where they are.
//
// Values are thought of as 0..255, also of float32 images. Results have the type of the image
// unless stated; bytes are rounded and kept in 0..255, floats with `clip`. Where colours matter,
// `rgb` says whether channels are red, green and blue, or the other way round.
#pragma once

#include <array>
#include <optional>

#include "tensorpack/imgaug/augmentor.h"
#include "tensorpack/imgaug/ranges.h"

namespace tensorpack::imgaug {

struct HueOptions {
  /// By how much, where 180 is once around the circle of colours.
  Range range = {0, 180};
  bool rgb = true;
};

ImageAugmentor Hue(HueOptions options = {});

struct BrightnessOptions {
  double delta = 0;  ///< a number in [-delta, delta] is added
  bool clip = true;
};

ImageAugmentor Brightness(BrightnessOptions options);

struct BrightnessScaleOptions {
  Range range = {1, 1};
  bool clip = true;
};

/// Multiplies by a number in the range.
ImageAugmentor BrightnessScale(BrightnessScaleOptions options);

struct ContrastOptions {
  Range range = {1, 1};
  /// If given, the mean is that of the image in grey; otherwise each channel has its own.
  std::optional<bool> rgb = {};
  bool clip = true;
};

/// Multiplies the distance from the mean by a number in the range.
ImageAugmentor Contrast(ContrastOptions options);

struct SaturationOptions {
  double alpha = 0.4;  ///< the factor is in [1 - alpha, 1 + alpha]
  bool rgb = true;
  bool clip = true;
};

/// Multiplies the distance of each pixel from its grey by a random factor.
ImageAugmentor Saturation(SaturationOptions options = {});

/// By this factor; `alpha` is not used.
Transform SaturationTransform(double factor, SaturationOptions options = {});

struct LightingOptions {
  double std = 0.1;
  /// Of the covariance of colours over the data set: the variance along each axis, and the axes as
  /// columns of a matrix, in the order of the image's channels.
  std::array<double, 3> eigenvalues = {};
  std::array<std::array<double, 3>, 3> eigenvectors = {};
  bool clip = true;
};

/// Adds a colour drawn along the axes in which colours of the data set vary, as AlexNet was trained
/// with.
ImageAugmentor Lighting(LightingOptions options);

struct GammaOptions {
  Range range = {-0.5, 0.5};
};

/// Raises values, as shares of 255, to the power of 1 / (1 + gamma), with gamma in the range.
ImageAugmentor Gamma(GammaOptions options = {});

struct GaussianBlurOptions {
  /// The window has 2 * radius + 1 pixels.
  IntRange radius = {0, 2};
  /// 0: one that suits the window.
  Range sigma = {0, 0};
  /// Whether both directions are the same.
  bool symmetric = true;
};

ImageAugmentor GaussianBlur(GaussianBlurOptions options = {});

struct ClipOptions {
  double min = 0;
  double max = 255;
};

ImageAugmentor Clip(ClipOptions options = {});

struct GrayscaleOptions {
  bool rgb = true;
  /// Whether the grey comes in three channels, otherwise in one.
  bool keep_channels = false;
};

ImageAugmentor Grayscale(GrayscaleOptions options = {});

enum class ColorConversion : uint8_t {
  kSwapRedAndBlue,  ///< RGB to BGR, and back
  kGrayToRgb,
  kRgbToHsv,
  kHsvToRgb,
  kRgbToLab,
  kLabToRgb,
  kRgbToYuv,
  kYuvToRgb,
  kBgrToHsv,
  kHsvToBgr,
  kBgrToLab,
  kLabToBgr,
  kBgrToYuv,
  kYuvToBgr,
};

/// The same colours in other coordinates: those of OpenCV's cvtColor().
ImageAugmentor ColorSpace(ColorConversion conversion);

struct MeanVarianceNormalizeOptions {
  /// Whether all channels have one mean and variance, or each its own.
  bool all_channels = true;
};

/// To mean 0 and variance 1, of float32.
ImageAugmentor MeanVarianceNormalize(MeanVarianceNormalizeOptions options = {});

struct MinMaxNormalizeOptions {
  double min = 0;
  double max = 255;
  /// Whether all channels are stretched alike, or each by its own extremes.
  bool all_channels = true;
};

/// To values from `min` to `max`, of float32. What has only one value becomes `min`.
ImageAugmentor MinMaxNormalize(MinMaxNormalizeOptions options = {});

/// Rounded, and kept in 0..255.
ImageAugmentor ToUint8();

ImageAugmentor ToFloat32();

}  // namespace tensorpack::imgaug
