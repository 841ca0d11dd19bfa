// SPDX-License-Identifier: Apache-2.0
// Augmentation of images: an augmentor draws, for each image, what is to be done to it.
//
//   const ImageAugmentor augmentor = AugmentorList({
//       GoogleNetRandomCropAndResize({.size = 224}),
//       Flip({.horizontal = true}),
//   });
//   const auto [image, transform] = augmentor.augment(original, rng);
//   const at::Tensor boxes = transform.apply_boxes(original_boxes);
#pragma once

#include "tensorpack/imgaug/transform.h"
#include "tensorpack/utils/rng.h"

namespace tensorpack::imgaug {

/// An image and how it came about.
struct Augmented {
  at::Tensor image;
  Transform transform;
};

/// A random choice of transforms. A value without state of its own: what is drawn depends on the
/// image and the Rng alone, and several threads may draw at a time.
class ImageAugmentor {
 public:
  using Policy = std::function<Transform(const at::Tensor& image, Rng& rng)>;
  using Augment = std::function<Augmented(const at::Tensor& image, Rng& rng)>;

  /// An augmentor of one's own: a function that draws a transform for an image.
  ImageAugmentor(std::string name, Policy policy);

  /// One of steps that depend on the images between them, for example on their sizes, so that the
  /// transform is only known when it was applied.
  static ImageAugmentor stepwise(std::string name, Augment augment);

  /// A transform for this image. Those between the steps of an AugmentorList are made for it;
  /// augment() makes them once only.
  Transform get_transform(const at::Tensor& image, Rng& rng) const;

  /// Draws a transform and applies it. The image given is not changed; the result may be a view of
  /// it.
  Augmented augment(const at::Tensor& image, Rng& rng) const;

  const std::string& name() const { return name_; }

 private:
  std::string name_;
  Policy policy_;
  Augment augment_;
};

/// One after the other. Each transform is drawn for the image that those before it made.
ImageAugmentor AugmentorList(std::vector<ImageAugmentor> augmentors);

}  // namespace tensorpack::imgaug
