// SPDX-License-Identifier: Apache-2.0
// Small images whose pixels can be counted.
#pragma once

#include <ATen/ATen.h>

#include <vector>

namespace tensorpack::imgaug {

inline at::Tensor counting_image(int64_t height, int64_t width) {
  return at::arange(height * width, at::kByte).reshape({height, width, 1});
}

inline at::Tensor bytes(const std::vector<int64_t>& values, at::IntArrayRef sizes) {
  return at::tensor(values).to(at::kByte).reshape(sizes);
}

}  // namespace tensorpack::imgaug
