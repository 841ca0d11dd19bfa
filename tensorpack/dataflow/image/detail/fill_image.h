// SPDX-License-Identifier: Apache-2.0
// An image as a row of a batch.
#pragma once

#include <string_view>

#include "tensorpack/dataflow/image/detail/pixels.h"
#include "tensorpack/dataflow/image/image_batch.h"

namespace tensorpack::detail {

/// Throws Error if the options make no batch. `stage` is whose they are.
void check_options(const ImageBatchOptions& options, const char* stage);

/// Which part of an image is taken, and how.
struct ImageChoice {
  imgaug::Rectangle area;
  bool mirror = false;
};

/// Draws, in this order, the part and whether it is mirrored.
ImageChoice choose(const ImageBatchOptions& options, const ImageReader& image,
                   std::string_view name, Rng& rng);

/// Makes rows of images on the calling thread.
class ImageFiller {
 public:
  explicit ImageFiller(const ImageBatchOptions& options);

  /// Decodes the part and writes it to `row`, of the type and layout of the options.
  void fill(ImageReader& image, const ImageChoice& choice, at::Tensor& row) const;

  /// The same of pixels that have the size already, three bytes each.
  void fill(std::string_view pixels, at::Tensor& row) const;

  /// An empty batch.
  at::Tensor empty_batch(int64_t images, c10::Device device = c10::kCPU) const;

  /// A number is byte * scale + bias.
  const std::array<float, 3>& scale() const { return scale_; }
  const std::array<float, 3>& bias() const { return bias_; }

 private:
  ImageBatchOptions options_;
  std::array<float, 3> scale_ = {1, 1, 1};
  std::array<float, 3> bias_ = {0, 0, 0};
};

}  // namespace tensorpack::detail
