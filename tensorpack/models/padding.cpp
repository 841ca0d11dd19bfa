// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/padding.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace tensorpack::detail {

std::pair<int64_t, int64_t> same_padding(int64_t size, int64_t kernel, int64_t stride,
                                         int64_t dilation) {
  const int64_t outputs = (size + stride - 1) / stride;
  const int64_t reach = (kernel - 1) * dilation + 1;
  const int64_t total = std::max<int64_t>((outputs - 1) * stride + reach - size, 0);
  return {total / 2, total - total / 2};
}

Border border_of(const Padding& padding, const at::Tensor& input, Size2D kernel, Size2D strides,
                 Size2D dilation) {
  if (padding.kind != Padding::Kind::kSame) {
    const auto [height, width] = padding.amount;
    return {.left = width, .right = width, .top = height, .bottom = height};
  }
  const auto [top, bottom] =
      same_padding(input.size(2), kernel.height, strides.height, dilation.height);
  const auto [left, right] =
      same_padding(input.size(3), kernel.width, strides.width, dilation.width);
  return {.left = left, .right = right, .top = top, .bottom = bottom};
}

}  // namespace tensorpack::detail
