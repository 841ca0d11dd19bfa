// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "tensorpack/models/layer.h"

namespace tensorpack {

/// How convolutions and pooling treat the border.
struct Padding {
  enum class Kind { kSame, kValid, kExplicit };
  Kind kind = Kind::kValid;
  Size2D amount = 0;

  /// Output size is input size / stride, rounded up; odd amounts go to the bottom and the right.
  static Padding same() { return {Kind::kSame, 0}; }
  static Padding valid() { return {Kind::kValid, 0}; }
  /// The same amount on both sides.
  static Padding of(Size2D amount) { return {Kind::kExplicit, amount}; }
};

namespace detail {
/// How much is added on each side of [N, C, H, W].
struct Border {
  int64_t left = 0, right = 0, top = 0, bottom = 0;

  /// Whether operators can add it themselves: as much on both sides.
  bool is_even() const { return left == right && top == bottom; }
  /// For constant_pad_nd().
  std::array<int64_t, 4> pad_widths() const { return {left, right, top, bottom}; }
};
Border border_of(const Padding& padding, const at::Tensor& input, Size2D kernel, Size2D strides,
                 Size2D dilation = 1);

/// How much SAME padding adds before and after one dimension.
std::pair<int64_t, int64_t> same_padding(int64_t size, int64_t kernel, int64_t stride,
                                         int64_t dilation);
}  // namespace detail

}  // namespace tensorpack
