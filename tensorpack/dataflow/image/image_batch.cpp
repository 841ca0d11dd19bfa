// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/image_batch.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tensorpack/dataflow/image/detail/pixels.h"
#include "tensorpack/dataflow/image/detail/resample.h"
#include "tensorpack/dataflow/parallel_map.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

using imgaug::ImageSize;
using imgaug::Rectangle;

// Memory of a thread for one image after the other. An exceptionally large one is not kept.
class Scratch {
 public:
  uint8_t* get(size_t bytes) {
    constexpr size_t kKept = size_t{64} << 20;
    if (bytes > memory_.size() || memory_.size() > kKept) memory_ = std::vector<uint8_t>(bytes);
    return memory_.data();
  }

 private:
  std::vector<uint8_t> memory_;
};

class ImageFiller {
 public:
  explicit ImageFiller(ImageBatchOptions options) : options_(std::move(options)) {
    for (size_t i = 0; i < scale_.size(); ++i) {
      scale_[i] = 1 / options_.std[i];
      bias_[i] = -options_.mean[i] / options_.std[i];
    }
  }

  DataPoint operator()(DataPoint point, Rng& rng, at::Tensor& row) const {
    TP_CHECK(!point.empty(), "image_batch", "the datapoint is empty. Component 0 is the image.");
    if (options_.reads_files) {
      const std::filesystem::path path(bytes_view(point[0]));
      fill(read_file(path), fmt::format("'{}'", path.string()), rng, row);
    } else {
      fill(bytes_view(point[0]), "the image", rng, row);
    }
    point.erase(point.begin());
    return point;
  }

 private:
  void fill(std::string_view bytes, const std::string& name, Rng& rng, at::Tensor& row) const {
    const auto reader =
        detail::open_image({.bytes = bytes, .name = name, .max_pixels = options_.max_pixels});
    const Rectangle area = options_.crop(reader->size(), rng);
    const bool mirror = options_.mirror > 0 && rng.chance(options_.mirror);
    detail::check_area(area, reader->size(), name);

    int reduction = detail::reduction_for(area, options_.size);
    const auto format = options_.color == ImageColor::kBgr ? detail::PixelFormat::kBgrx
                                                           : detail::PixelFormat::kRgbx;
    const Rectangle decoded = reader->begin(area, reduction, format);
    thread_local Scratch scratch;
    const detail::PixelRows pixels{.data = scratch.get(decoded.width * decoded.height * 4),
                                   .stride = decoded.width * 4,
                                   .width = decoded.width,
                                   .height = decoded.height};
    reader->read(const_cast<uint8_t*>(pixels.data), pixels.stride);

    const double scale = 1. / reduction;
    const detail::PixelPart part{
        .left = static_cast<double>(area.left) * scale - static_cast<double>(decoded.left),
        .top = static_cast<double>(area.top) * scale - static_cast<double>(decoded.top),
        .width = static_cast<double>(area.width) * scale,
        .height = static_cast<double>(area.height) * scale};
    if (options_.dtype == at::kByte) {
      write<uint8_t>(pixels, part, mirror, row);
    } else {
      write<float>(pixels, part, mirror, row);
    }
  }

  template <typename T>
  void write(const detail::PixelRows& pixels, const detail::PixelPart& part, bool mirror,
             at::Tensor& row) const {
    detail::PixelTarget<T> target{.data = static_cast<T*>(row.data_ptr()),
                                  .width = options_.size.width,
                                  .height = options_.size.height,
                                  .channel_stride = row.stride(0),
                                  .row_stride = row.stride(1),
                                  .pixel_stride = row.stride(2),
                                  .mirror = mirror};
    if constexpr (std::is_same_v<T, float>) {
      target.scale = scale_;
      target.bias = bias_;
    }
    detail::resample(pixels, part, target, {.antialias = options_.antialias});
  }

  ImageBatchOptions options_;
  std::array<float, 3> scale_ = {};
  std::array<float, 3> bias_ = {};
};

void check(const ImageBatchOptions& options) {
  TP_CHECK(options.size.height > 0 && options.size.width > 0, "image_batch",
           "images of {} x {} pixels cannot be made. Choose a positive size.", options.size.height,
           options.size.width);
  TP_CHECK(options.crop, "image_batch", "there is no way to choose the part. Set {{.crop = ...}}.");
  TP_CHECK(options.mirror >= 0 && options.mirror <= 1, "image_batch",
           "the probability of mirroring must be in 0..1, got {}.", options.mirror);
  TP_CHECK(options.color != ImageColor::kGray, "image_batch",
           "batches have three channels. Choose ImageColor::kRgb or kBgr.");
  TP_CHECK(options.dtype == at::kFloat || options.dtype == at::kByte, "image_batch",
           "batches of {} cannot be made. Choose at::kFloat or at::kByte.",
           c10::toString(options.dtype));
  for (const float std : options.std) {
    TP_CHECK(std > 0, "image_batch", "the standard deviation must be positive, got {}.", std);
  }
}

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
  check(options);
  const FilledComponent images{.shape = {3, options.size.height, options.size.width},
                               .dtype = options.dtype,
                               .channels_last = options.channels_last};
  const MapAndBatchOptions batch{.threads = options.threads,
                                 .capacity = options.capacity,
                                 .remainder = options.remainder,
                                 .on_error = options.on_error,
                                 .seed = options.seed};
  return fill_batch(images, ImageFiller(std::move(options)), size, batch);
}

}  // namespace tensorpack
