// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/fill_image.h"

#include <torch/types.h>

#include <vector>

#include "tensorpack/dataflow/image/detail/resample.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {
namespace {

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

template <typename T>
PixelTarget<T> target_in(at::Tensor& row, const ImageFiller& filler, bool mirror) {
  PixelTarget<T> target{.data = static_cast<T*>(row.data_ptr()),
                        .width = row.size(2),
                        .height = row.size(1),
                        .channel_stride = row.stride(0),
                        .row_stride = row.stride(1),
                        .pixel_stride = row.stride(2),
                        .mirror = mirror};
  if constexpr (std::is_same_v<T, float>) {
    target.scale = filler.scale();
    target.bias = filler.bias();
  }
  return target;
}

}  // namespace

void check_options(const ImageBatchOptions& options, const char* stage) {
  TP_CHECK(options.size.height > 0 && options.size.width > 0, stage,
           "images of {} x {} pixels cannot be made. Choose a positive size.", options.size.height,
           options.size.width);
  TP_CHECK(options.crop, stage, "there is no way to choose the part. Set {{.crop = ...}}.");
  TP_CHECK(options.mirror >= 0 && options.mirror <= 1, stage,
           "the probability of mirroring must be in 0..1, got {}.", options.mirror);
  TP_CHECK(options.color != ImageColor::kGray, stage,
           "batches have three channels. Choose ImageColor::kRgb or kBgr.");
  TP_CHECK(options.dtype == at::kFloat || options.dtype == at::kByte, stage,
           "batches of {} cannot be made. Choose at::kFloat or at::kByte.",
           c10::toString(options.dtype));
  for (const float std : options.std) {
    TP_CHECK(std > 0, stage, "the standard deviation must be positive, got {}.", std);
  }
}

ImageChoice choose(const ImageBatchOptions& options, const ImageReader& image,
                   std::string_view name, Rng& rng) {
  const ImageChoice choice{.area = options.crop(image.size(), rng),
                           .mirror = options.mirror > 0 && rng.chance(options.mirror)};
  check_area(choice.area, image.size(), name);
  return choice;
}

ImageFiller::ImageFiller(const ImageBatchOptions& options) : options_(options) {
  if (options.dtype == at::kByte) return;
  for (size_t i = 0; i < scale_.size(); ++i) {
    scale_[i] = 1 / options_.std[i];
    bias_[i] = -options_.mean[i] / options_.std[i];
  }
}

void ImageFiller::fill(ImageReader& image, const ImageChoice& choice, at::Tensor& row) const {
  const imgaug::Rectangle& area = choice.area;
  int reduction = reduction_for(area, options_.size);
  const auto format = options_.color == ImageColor::kBgr ? PixelFormat::kBgrx : PixelFormat::kRgbx;
  const imgaug::Rectangle decoded = image.begin(area, reduction, format);
  thread_local Scratch scratch;
  const PixelRows pixels{.data = scratch.get(decoded.width * decoded.height * 4),
                         .stride = decoded.width * 4,
                         .width = decoded.width,
                         .height = decoded.height};
  image.read(const_cast<uint8_t*>(pixels.data), pixels.stride);

  const double scale = 1. / reduction;
  const PixelPart part{
      .left = static_cast<double>(area.left) * scale - static_cast<double>(decoded.left),
      .top = static_cast<double>(area.top) * scale - static_cast<double>(decoded.top),
      .width = static_cast<double>(area.width) * scale,
      .height = static_cast<double>(area.height) * scale};
  const ResampleOptions how{.antialias = options_.antialias};
  if (options_.dtype == at::kByte) {
    resample(pixels, part, target_in<uint8_t>(row, *this, choice.mirror), how);
  } else {
    resample(pixels, part, target_in<float>(row, *this, choice.mirror), how);
  }
}

void ImageFiller::fill(std::string_view pixels, at::Tensor& row) const {
  const at::Tensor image =
      at::from_blob(const_cast<char*>(pixels.data()), {row.size(1), row.size(2), 3}, at::kByte)
          .permute({2, 0, 1});
  if (options_.dtype == at::kByte) {
    row.copy_(image);
    return;
  }
  for (int64_t c = 0; c < 3; ++c) row[c].copy_(image[c]).mul_(scale_[c]).add_(bias_[c]);
}

at::Tensor ImageFiller::empty_batch(int64_t images, c10::Device device) const {
  const auto format =
      options_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  return at::empty({images, 3, options_.size.height, options_.size.width},
                   at::TensorOptions(options_.dtype).device(device).memory_format(format));
}

}  // namespace tensorpack::detail
