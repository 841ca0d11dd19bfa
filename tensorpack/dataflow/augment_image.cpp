// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/augment_image.h"

#include "tensorpack/imgaug/boxes.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

at::Tensor& component(DataPoint& point, size_t index) {
  TP_CHECK(index < point.size(), "AugmentImage",
           "there is no component {}: the datapoint has {}. Count from 0.", index, point.size());
  return point[index];
}

DataPoint augment(const imgaug::ImageAugmentor& augmentor,
                  const AugmentImageComponentsOptions& options, DataPoint point, Rng& rng) {
  at::Tensor& first = component(point, options.images.front());
  const auto [image, transform] = augmentor.augment(first, rng);
  // A view of a larger image would keep all of it in memory.
  first = image.contiguous();
  for (size_t i = 1; i < options.images.size(); ++i) {
    at::Tensor& other = component(point, options.images[i]);
    other = transform.apply_image(other).contiguous();
  }
  for (const size_t index : options.coords) {
    at::Tensor& coords = component(point, index);
    coords = transform.apply_coords(coords);
  }
  for (const size_t index : options.boxes) {
    at::Tensor& boxes = component(point, index);
    boxes = imgaug::clip_boxes(transform.apply_boxes(boxes), imgaug::size_of(image));
  }
  return point;
}

}  // namespace

AugmentFunction AugmentImageComponent(imgaug::ImageAugmentor augmentor, size_t index) {
  return AugmentImageComponents(std::move(augmentor), {.images = {index}});
}

AugmentFunction AugmentImageCoordinates(imgaug::ImageAugmentor augmentor,
                                        AugmentImageCoordinatesOptions options) {
  return AugmentImageComponents(std::move(augmentor),
                                {.images = {options.image}, .coords = {options.coords}});
}

AugmentFunction AugmentImageComponents(imgaug::ImageAugmentor augmentor,
                                       AugmentImageComponentsOptions options) {
  TP_CHECK(!options.images.empty(), "AugmentImageComponents", "there is no image to augment.");
  return
      [augmentor = std::move(augmentor), options = std::move(options)](DataPoint point, Rng& rng) {
        return augment(augmentor, options, std::move(point), rng);
      };
}

}  // namespace tensorpack
