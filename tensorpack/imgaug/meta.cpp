// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/meta.h"

#include <cmath>
#include <numeric>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::imgaug {
namespace {

// The index at which the sum of probabilities passes a random number.
size_t draw_index(const std::vector<double>& probabilities, Rng& rng) {
  double left = rng.uniform();
  for (size_t i = 0; i + 1 < probabilities.size(); ++i) {
    left -= probabilities[i];
    if (left < 0) return i;
  }
  return probabilities.size() - 1;
}

void check_choice(size_t augmentors, const std::vector<double>& probabilities) {
  constexpr const char* kName = "RandomChooseAug";
  TP_CHECK(augmentors > 0, kName, "there is nothing to choose from.");
  TP_CHECK(probabilities.size() == augmentors, kName, "{} cannot be chosen by a list of {}.",
           counted(static_cast<int64_t>(augmentors), "augmentor"),
           counted(std::ssize(probabilities), "number"));
  for (const double probability : probabilities) {
    TP_CHECK(probability >= 0, kName, "{} is no probability.", probability);
  }
  const double sum = std::accumulate(probabilities.begin(), probabilities.end(), 0.0);
  TP_CHECK(std::abs(sum - 1) < 1e-6, kName, "the probabilities add up to {}, not to 1.", sum);
}

}  // namespace

ImageAugmentor Identity() {
  return {"Identity", [](const at::Tensor&, Rng&) { return identity(); }};
}

ImageAugmentor RandomApplyAug(ImageAugmentor augmentor, double probability) {
  TP_CHECK(probability >= 0 && probability <= 1, "RandomApplyAug", "{} is no probability.",
           probability);
  return ImageAugmentor::stepwise("RandomApplyAug", [augmentor = std::move(augmentor), probability](
                                                        const at::Tensor& image, Rng& rng) {
    return rng.chance(probability) ? augmentor.augment(image, rng) : Augmented{image, identity()};
  });
}

ImageAugmentor RandomChooseAug(std::vector<ImageAugmentor> augmentors,
                               std::vector<double> probabilities) {
  if (probabilities.empty()) {
    probabilities.assign(augmentors.size(), 1.0 / static_cast<double>(augmentors.size()));
  }
  check_choice(augmentors.size(), probabilities);
  return ImageAugmentor::stepwise("RandomChooseAug", [augmentors = std::move(augmentors),
                                                      probabilities = std::move(probabilities)](
                                                         const at::Tensor& image, Rng& rng) {
    return augmentors[draw_index(probabilities, rng)].augment(image, rng);
  });
}

ImageAugmentor RandomOrderAug(std::vector<ImageAugmentor> augmentors) {
  return ImageAugmentor::stepwise(
      "RandomOrderAug", [augmentors = std::move(augmentors)](const at::Tensor& image, Rng& rng) {
        std::vector<ImageAugmentor> ordered = augmentors;
        for (size_t i = ordered.size(); i > 1; --i)
          std::swap(ordered[i - 1], ordered[rng.below(i)]);
        return AugmentorList(std::move(ordered)).augment(image, rng);
      });
}

ImageAugmentor MapImage(Transform::Function image, Transform::Function coords) {
  Transform transform("MapImage", std::move(image), std::move(coords));
  return {"MapImage",
          [transform = std::move(transform)](const at::Tensor&, Rng&) { return transform; }};
}

}  // namespace tensorpack::imgaug
