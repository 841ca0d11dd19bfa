// SPDX-License-Identifier: Apache-2.0
// The operations of the policies in auto_augment.h that are no augmentors of their own. Values are
// 0..255, also of float32 images, which are rounded to bytes in between.
#pragma once

#include "tensorpack/imgaug/image.h"

namespace tensorpack::imgaug::detail {

/// Moves each pixel away from the mean of its neighbourhood: by 0 it is that mean, by 1 the pixel
/// itself. Pixels at the border stay.
at::Tensor sharpen(const at::Tensor& image, double factor);

/// Keeps the highest bits of each value.
at::Tensor posterize(const at::Tensor& image, int bits);

/// Inverts values that are not below the threshold.
at::Tensor solarize(const at::Tensor& image, double threshold);

/// Stretches each channel to 0..255.
at::Tensor auto_contrast(const at::Tensor& image);

/// Makes the values of each channel about equally frequent.
at::Tensor equalize(const at::Tensor& image);

}  // namespace tensorpack::imgaug::detail
