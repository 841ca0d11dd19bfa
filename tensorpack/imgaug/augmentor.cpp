// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/augmentor.h"

namespace tensorpack::imgaug {

ImageAugmentor::ImageAugmentor(std::string name, Policy policy)
    : name_(std::move(name)), policy_(std::move(policy)) {}

ImageAugmentor ImageAugmentor::stepwise(std::string name, Augment augment) {
  ImageAugmentor augmentor(std::move(name), nullptr);
  augmentor.augment_ = std::move(augment);
  return augmentor;
}

Transform ImageAugmentor::get_transform(const at::Tensor& image, Rng& rng) const {
  check_image(name_, image);
  return policy_ ? policy_(image, rng) : augment_(image, rng).transform;
}

Augmented ImageAugmentor::augment(const at::Tensor& image, Rng& rng) const {
  check_image(name_, image);
  if (augment_) return augment_(image, rng);
  Transform transform = policy_(image, rng);
  return {transform.apply_image(image), std::move(transform)};
}

ImageAugmentor AugmentorList(std::vector<ImageAugmentor> augmentors) {
  return ImageAugmentor::stepwise(
      "AugmentorList", [augmentors = std::move(augmentors)](const at::Tensor& image, Rng& rng) {
        at::Tensor current = image;
        std::vector<Transform> transforms;
        transforms.reserve(augmentors.size());
        for (const ImageAugmentor& augmentor : augmentors) {
          auto [next, transform] = augmentor.augment(current, rng);
          current = std::move(next);
          transforms.push_back(std::move(transform));
        }
        return Augmented{std::move(current), TransformList(std::move(transforms))};
      });
}

}  // namespace tensorpack::imgaug
