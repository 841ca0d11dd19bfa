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

std::vector<Image> to_images(const at::Tensor& pixels) {
  TP_CHECK(pixels.defined() && pixels.dim() >= 2 && pixels.dim() <= 4, "Image",
           "a tensor with {} is no image. Give [H, W], [H, W, C], [N, H, W] or "
           "[N, H, W, C].",
           counted(pixels.defined() ? pixels.dim() : 0, "dimension"));
  if (pixels.dim() == 2 || (pixels.dim() == 3 && is_number_of_channels(pixels.size(2)))) {
    return {Image(pixels)};
  }
  std::vector<Image> images;
  for (const at::Tensor& image : pixels.unbind(0)) images.emplace_back(image);
  return images;
}

}  // namespace tensorpack
