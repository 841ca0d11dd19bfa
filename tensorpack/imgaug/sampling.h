// SPDX-License-Identifier: Apache-2.0
// How pixels between pixels, and outside of the image, are made up.
#pragma once

#include <cstdint>

namespace tensorpack::imgaug {

enum class Interpolation : uint8_t {
  kNearest,
  kLinear,
  kCubic,
  kArea,  ///< The mean of the pixels that one stands for: for making images smaller.
  kLanczos,
};

enum class Border : uint8_t {
  kConstant,   ///< a colour
  kReplicate,  ///< aaa|abcd|ddd
  kReflect,    ///< cba|abcd|dcb
  kWrap,       ///< bcd|abcd|abc
};

}  // namespace tensorpack::imgaug
