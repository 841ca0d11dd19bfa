// SPDX-License-Identifier: Apache-2.0
// Images as OpenCV's matrices and back, without copies. The only header that includes OpenCV's:
// who includes it links tensorpack::OPENCV.
//
//   MapImage([](const at::Tensor& image) {
//     return map_mat(image, [](const cv::Mat& in) { cv::Mat out; cv::medianBlur(in, out, 3); return
//     out; });
//   });
#pragma once

#include <opencv2/core/mat.hpp>

#include "tensorpack/imgaug/image.h"

namespace tensorpack::imgaug {

/// The image as a matrix that shares its memory, which it must not outlive and must not write to.
/// Throws Error if the pixels of a row do not follow each other: such an image needs contiguous().
cv::Mat as_mat(const at::Tensor& image);

/// A matrix of uint8 or float32 as an image that shares its memory, [height, width, channels], or
/// without the channels, of which there must be one. Memory that is not the matrix's own is copied.
at::Tensor as_image(const cv::Mat& mat, bool with_channels = true);

/// `image`, or a copy of it that as_mat() takes.
at::Tensor with_dense_rows(const at::Tensor& image);

/// What `function`, from matrix to matrix, makes of an image; with as many dimensions.
template <typename Function>
at::Tensor map_mat(const at::Tensor& image, Function&& function) {
  const at::Tensor dense = with_dense_rows(image);
  return as_image(function(as_mat(dense)), image.dim() == 3);
}

}  // namespace tensorpack::imgaug
