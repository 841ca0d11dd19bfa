// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/mat.h"

#include <ATen/ATen.h>

#include <opencv2/core.hpp>

#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug {
namespace {

// The stages of a dataflow are parallel over images. Threads inside one would be in their way.
void use_one_thread() { [[maybe_unused]] static const bool once = (cv::setNumThreads(0), true); }

bool has_dense_rows(const at::Tensor& image) {
  const int64_t channels = channels_of(image);
  return (image.dim() == 2 || channels == 1 || image.stride(2) == 1) &&
         (image.size(1) == 1 || image.stride(1) == channels) &&
         (image.size(0) == 1 || image.stride(0) >= image.size(1) * channels);
}

}  // namespace

at::Tensor with_dense_rows(const at::Tensor& image) {
  return has_dense_rows(image) ? image : image.contiguous();
}

cv::Mat as_mat(const at::Tensor& image) {
  use_one_thread();
  check_image("as_mat", image);
  TP_CHECK(has_dense_rows(image), "as_mat",
           "the pixels of a row do not follow each other in memory. Call contiguous() first.");
  const int64_t channels = channels_of(image);
  TP_CHECK(channels <= CV_CN_MAX, "as_mat", "OpenCV has no images of {} channels, only up to {}.",
           channels, CV_CN_MAX);
  const int depth = image.scalar_type() == at::kByte ? CV_8U : CV_32F;
  const size_t step = image.size(0) == 1 ? size_t{cv::Mat::AUTO_STEP}
                                         : static_cast<size_t>(image.stride(0)) * image.itemsize();
  return {static_cast<int>(image.size(0)), static_cast<int>(image.size(1)),
          CV_MAKETYPE(depth, static_cast<int>(channels)), image.data_ptr(), step};
}

at::Tensor as_image(const cv::Mat& mat, bool with_channels) {
  TP_CHECK(mat.dims == 2 && !mat.empty() && (mat.depth() == CV_8U || mat.depth() == CV_32F),
           "as_image",
           "a matrix of {} dimensions, {} elements and type {} is no image. It needs two "
           "dimensions, uint8 or float32, and at least one pixel.",
           mat.dims, mat.total(), cv::typeToString(mat.type()));
  TP_CHECK(with_channels || mat.channels() == 1, "as_image",
           "an image without a dimension of channels cannot have {} of them.", mat.channels());
  const auto type = mat.depth() == CV_8U ? at::kByte : at::kFloat;
  std::vector<int64_t> sizes = {mat.rows, mat.cols};
  std::vector<int64_t> strides = {static_cast<int64_t>(mat.step1()), mat.channels()};
  if (with_channels) {
    sizes.push_back(mat.channels());
    strides.push_back(1);
  }
  at::Tensor image = at::from_blob(
      mat.data, sizes, strides, [mat](void*) {}, at::TensorOptions(type));
  return mat.u == nullptr ? image.clone() : image;
}

}  // namespace tensorpack::imgaug
