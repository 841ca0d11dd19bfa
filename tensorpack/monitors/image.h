// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The order of dimensions in tensors of images. Everything that takes such tensors takes kNCHW,
/// the layout of layers, unless it is told otherwise.
enum class ImageLayout {
  kNCHW,  ///< [N, C, H, W], or [C, H, W] for one
  kNHWC,  ///< [N, H, W, C], or [H, W, C] for one: as files are decoded, and Tensorpack has them
};

/// One picture. A cheap handle: copies share the pixels, and the file they are encoded to.
class Image {
 public:
  /// `pixels` is [H, W] or [H, W, C] with 1, 3 or 4 channels (gray, RGB, RGBA), of any type and on
  /// any device; values are rounded and cut to 0..255. Throws Error for other shapes.
  explicit Image(const at::Tensor& pixels);

  /// [H, W, C], bytes of the host.
  const at::Tensor& pixels() const { return pixels_; }
  int64_t height() const { return pixels_.size(0); }
  int64_t width() const { return pixels_.size(1); }
  int64_t channels() const { return pixels_.size(2); }

  /// The bytes of a PNG file; encoded when somebody asks for the first time.
  const std::string& png() const;

 private:
  at::Tensor pixels_;
  std::shared_ptr<std::string> png_ = std::make_shared<std::string>();
};

/// The pictures in a tensor, of 1, 3 or 4 channels (gray, RGB, RGBA): one or several in `layout`,
/// one gray picture [H, W], or, where the dimension of channels has another size, a stack of gray
/// ones [N, H, W]. Throws Error for other shapes, and for those that only the other layout
/// explains.
std::vector<Image> to_images(const at::Tensor& pixels, ImageLayout layout = ImageLayout::kNCHW);

}  // namespace tensorpack
