// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <utility>

#include "tensorpack/models/layer.h"

namespace tensorpack {

/// How a convolution treats the border.
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
/// How much SAME padding adds before and after one dimension.
std::pair<int64_t, int64_t> same_padding(int64_t size, int64_t kernel, int64_t stride,
                                         int64_t dilation);
}  // namespace detail

}  // namespace tensorpack
