// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/image_batch.h"

#include <algorithm>
#include <cmath>

#include "tensorpack/dataflow/image/detail/fill_image.h"
#include "tensorpack/dataflow/image/detail/image_file.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

using imgaug::ImageSize;
using imgaug::Rectangle;

class FillsImages {
 public:
  explicit FillsImages(ImageBatchOptions options)
      : options_(std::move(options)), filler_(options_) {}

  DataPoint operator()(DataPoint point, Rng& rng, at::Tensor& row) const {
    const detail::ImageFile file(point, options_.reads_files, "image_batch");
    const auto image = detail::open_image(
        {.bytes = file.bytes(), .name = file.name(), .max_pixels = options_.max_pixels});
    filler_.fill(*image, detail::choose(options_, *image, file.name(), rng), row);
    point.erase(point.begin());
    return point;
  }

 private:
  ImageBatchOptions options_;
  detail::ImageFiller filler_;
};

}  // namespace

ChooseCrop random_area(imgaug::AreaCropOptions options) {
  return [options](ImageSize size, Rng& rng) { return random_area_crop(size, options, rng); };
}

ChooseCrop central_area(ImageSize shape, double share) {
  TP_CHECK(share > 0 && share <= 1 && shape.height > 0 && shape.width > 0, "central_area",
           "a share of {} with the shape {} x {} is no area. Choose one in (0, 1], of a positive "
           "shape.",
           share, shape.height, shape.width);
  return [shape, share](ImageSize size, Rng&) {
    const double fit = share * std::min(static_cast<double>(size.height) / shape.height,
                                        static_cast<double>(size.width) / shape.width);
    const auto side = [fit](int64_t wanted, int64_t available) {
      return std::clamp<int64_t>(std::lround(fit * static_cast<double>(wanted)), 1, available);
    };
    const int64_t width = side(shape.width, size.width);
    const int64_t height = side(shape.height, size.height);
    return Rectangle{.left = (size.width - width) / 2,
                     .top = (size.height - height) / 2,
                     .width = width,
                     .height = height};
  };
}

Stage image_batch(int64_t size, ImageBatchOptions options) {
  detail::check_options(options, "image_batch");
  const FilledComponent images{.shape = {3, options.size.height, options.size.width},
                               .dtype = options.dtype,
                               .channels_last = options.channels_last};
  const MapAndBatchOptions batch{.threads = options.threads,
                                 .capacity = options.capacity,
                                 .remainder = options.remainder,
                                 .on_error = options.on_error,
                                 .seed = options.seed,
                                 .name = "image_batch"};
  return fill_batch(images, FillsImages(std::move(options)), size, batch);
}

}  // namespace tensorpack
