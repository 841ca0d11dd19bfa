// SPDX-License-Identifier: Apache-2.0
// Augmentors made of others, or of a function.
#pragma once

#include "tensorpack/imgaug/augmentor.h"

namespace tensorpack::imgaug {

/// Does nothing.
ImageAugmentor Identity();

/// With this probability, otherwise nothing.
ImageAugmentor RandomApplyAug(ImageAugmentor augmentor, double probability);

/// One of them, each as likely, or with these probabilities, whose sum is 1.
ImageAugmentor RandomChooseAug(std::vector<ImageAugmentor> augmentors,
                               std::vector<double> probabilities = {});

/// All of them, in a random order.
ImageAugmentor RandomOrderAug(std::vector<ImageAugmentor> augmentors);

/// A function of images, which must not change what it is given. Without a function that says where
/// points go, it is of use where there are none. tensorpack/imgaug/mat.h lends images to OpenCV.
ImageAugmentor MapImage(Transform::Function image, Transform::Function coords = {});

}  // namespace tensorpack::imgaug
