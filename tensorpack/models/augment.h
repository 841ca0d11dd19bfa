// SPDX-License-Identifier: Apache-2.0
// Cheap augmentations as functions of a batch in the tower: they are recorded with the step, run
// where it runs, and draw from the graph's random numbers, so that a training that goes on from a
// checkpoint draws what it would have drawn.
//
//   image = random_flip(random_crop(image, {.padding = 4}));
//   image = normalize(image, {0.485, 0.456, 0.406}, {0.229, 0.224, 0.225});
//
// Batches are [n, channels, height, width] of a floating type. Every image has draws of its own.
// Outside of training, nothing but normalize() changes anything.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

struct RandomCropOptions {
  int64_t padding = 4;  ///< of zeros, on each side
};

/// Pads images and takes a part of their former size at a random place.
at::Tensor random_crop(const at::Tensor& images, RandomCropOptions options = {});

struct RandomFlipOptions {
  double probability = 0.5;
  bool vertical = false;  ///< top and bottom, instead of left and right
};

/// Mirrors some images.
at::Tensor random_flip(const at::Tensor& images, RandomFlipOptions options = {});

/// Subtracts a mean from each channel and divides by a deviation, in training or not.
at::Tensor normalize(const at::Tensor& images, const std::vector<double>& mean,
                     const std::vector<double>& std);

struct RandomColorOptions {
  /// The factors are in [1 - x, 1 + x], and not negative; 0 leaves it out.
  double brightness = 0;
  double contrast = 0;
  double saturation = 0;  ///< needs three channels, red, green and blue
  /// Colours are turned on their wheel (of HSV) by an angle in [-hue, hue], in degrees; 0 leaves it
  /// out. Needs three channels too.
  double hue = 0;
  /// Results are kept in 0..max, if there is one.
  std::optional<double> max = {};
};

/// Changes brightness, then contrast, then saturation, then hue.
at::Tensor color_jitter(const at::Tensor& images, RandomColorOptions options);

struct MixInTowerOptions {
  double alpha = 0.2;  ///< the share of an image's own is drawn from Beta(alpha, alpha)
};

struct CutMixInTowerOptions {
  double alpha = 1;  ///< the area of an image's own is drawn from Beta(alpha, alpha)
};

/// Mixup: every image becomes the weighted mean of itself and the one before it in the batch, with
/// one weight for the batch; so does its label. Labels are shares [n, classes] of a floating type:
/// one_hot() makes them.
std::pair<at::Tensor, at::Tensor> mixup(const at::Tensor& images, const at::Tensor& labels,
                                        MixInTowerOptions options = {});

/// CutMix: a rectangle of every image, the same for the batch, comes from the one before it. Labels
/// are mixed by the area, as those of mixup().
std::pair<at::Tensor, at::Tensor> cutmix(const at::Tensor& images, const at::Tensor& labels,
                                         CutMixInTowerOptions options = {});

}  // namespace tensorpack
