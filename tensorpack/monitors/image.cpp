// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/image.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <span>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/png.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

bool is_number_of_channels(int64_t size) { return size == 1 || size == 3 || size == 4; }

bool is_picture(const at::Tensor& pixels) {
  return pixels.defined() && pixels.numel() > 0 &&
         (pixels.dim() == 2 || (pixels.dim() == 3 && is_number_of_channels(pixels.size(2))));
}

at::Tensor to_bytes(const at::Tensor& pixels) {
  at::NoGradGuard no_grad;
  if (pixels.scalar_type() == at::kByte) return pixels.detach().cpu().contiguous();
  return pixels.detach()
      .cpu()
      .to(at::kFloat)
      .nan_to_num(0)
      .round()
      .clamp(0, 255)
      .to(at::kByte)
      .contiguous();
}

const char* name_of(ImageLayout layout) { return layout == ImageLayout::kNHWC ? "kNHWC" : "kNCHW"; }

const char* shapes_of(ImageLayout layout) {
  return layout == ImageLayout::kNHWC ? "[H, W, C] or [N, H, W, C]" : "[C, H, W] or [N, C, H, W]";
}

// Of [N, H, W, C].
std::vector<Image> pictures_in(const at::Tensor& pixels) {
  std::vector<Image> images;
  for (const at::Tensor& image : pixels.unbind(0)) images.emplace_back(image);
  return images;
}

}  // namespace

Image::Image(const at::Tensor& pixels) {
  TP_CHECK(is_picture(pixels), "Image",
           "a tensor of shape [{}] is no image. Give [H, W], or [H, W, C] with 1, 3 or 4 channels.",
           pixels.defined() ? fmt::format("{}", fmt::join(pixels.sizes(), ", ")) : "undefined");
  pixels_ = to_bytes(pixels.dim() == 2 ? pixels.unsqueeze(2) : pixels);
}

const std::string& Image::png() const {
  if (png_->empty()) {
    const std::span bytes(pixels_.data_ptr<uint8_t>(), static_cast<size_t>(pixels_.numel()));
    *png_ = encode_png(bytes, height(), width(), channels());
  }
  return *png_;
}

std::vector<Image> to_images(const at::Tensor& pixels, ImageLayout layout) {
  TP_CHECK(pixels.defined() && pixels.dim() >= 2 && pixels.dim() <= 4, "Image",
           "a tensor with {} is no image. Give [H, W], [N, H, W], or {}.",
           counted(pixels.defined() ? pixels.dim() : 0, "dimension"), shapes_of(layout));
  if (pixels.dim() == 2) return {Image(pixels)};
  const auto has_channels = [&](ImageLayout in) {
    return is_number_of_channels(pixels.size(in == ImageLayout::kNHWC ? -1 : -3));
  };
  if (has_channels(layout)) {
    const at::Tensor images = pixels.dim() == 3 ? pixels.unsqueeze(0) : pixels;
    return pictures_in(layout == ImageLayout::kNHWC ? images : images.permute({0, 2, 3, 1}));
  }
  const ImageLayout other = layout == ImageLayout::kNHWC ? ImageLayout::kNCHW : ImageLayout::kNHWC;
  TP_CHECK(!has_channels(other), "Image",
           "a tensor of shape [{}] has no 1, 3 or 4 channels as {}. Its shape is one of {}: if it "
           "is laid out so, pass ImageLayout::{}.",
           fmt::join(pixels.sizes(), ", "), shapes_of(layout), shapes_of(other), name_of(other));
  TP_CHECK(pixels.dim() == 3, "Image",
           "a tensor of shape [{}] is no image: as {} it has no 1, 3 or 4 channels.",
           fmt::join(pixels.sizes(), ", "), shapes_of(layout));
  return pictures_in(pixels.unsqueeze(3));
}

}  // namespace tensorpack
