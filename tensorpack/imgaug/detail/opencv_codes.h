// SPDX-License-Identifier: Apache-2.0
// Our words in OpenCV's numbers.
#pragma once

#include <opencv2/imgproc.hpp>

#include "tensorpack/imgaug/sampling.h"

namespace tensorpack::imgaug::detail {

constexpr int opencv_code(Interpolation interpolation) {
  switch (interpolation) {
    case Interpolation::kNearest:
      return cv::INTER_NEAREST;
    case Interpolation::kLinear:
      return cv::INTER_LINEAR;
    case Interpolation::kCubic:
      return cv::INTER_CUBIC;
    case Interpolation::kArea:
      return cv::INTER_AREA;
    case Interpolation::kLanczos:
      return cv::INTER_LANCZOS4;
  }
  return cv::INTER_LINEAR;
}

constexpr int opencv_code(Border border) {
  switch (border) {
    case Border::kConstant:
      return cv::BORDER_CONSTANT;
    case Border::kReplicate:
      return cv::BORDER_REPLICATE;
    case Border::kReflect:
      return cv::BORDER_REFLECT;
    case Border::kWrap:
      return cv::BORDER_WRAP;
  }
  return cv::BORDER_REPLICATE;
}

}  // namespace tensorpack::imgaug::detail
