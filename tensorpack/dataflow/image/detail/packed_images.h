// SPDX-License-Identifier: Apache-2.0
// What encoded_batch() hands to a DecodingInput.
#pragma once

#include <string_view>
#include <vector>

#include "tensorpack/dataflow/image/detail/fill_image.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::detail {

/// One image of a batch.
struct PackedImage {
  /// A plain JPEG; or pixels of three bytes, of the size that the batch is to have.
  std::string_view bytes = {};
  bool is_jpeg = true;
  imgaug::ImageSize size = {};  ///< of the whole image
  ImageChoice choice = {};      ///< what of it is taken
  std::string_view name = {};   ///< for errors
};

/// The two components of a datapoint that stand for an image: its bytes, and numbers that tell what
/// they are.
std::pair<at::Tensor, at::Tensor> pack(const PackedImage& image);

/// The images of a batch, of which the first component has all bytes one after the other, and the
/// second a row of numbers for each image. Both must outlive the result.
///
/// Throws Error if the components are something else.
std::vector<PackedImage> unpack(const at::Tensor& bytes, const at::Tensor& numbers);

}  // namespace tensorpack::detail
