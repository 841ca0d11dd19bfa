// SPDX-License-Identifier: Apache-2.0
// From decoded pixels to the rows of a batch in one go: part, size, mirroring, colours as numbers.
#pragma once

#include <array>
#include <cstdint>

namespace tensorpack::detail {

/// Pixels of four bytes.
struct PixelRows {
  const uint8_t* data = nullptr;
  int64_t stride = 0;  ///< bytes from row to row
  int64_t width = 0;
  int64_t height = 0;
};

/// A part of such pixels that need not begin or end with a whole one.
struct PixelPart {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;
};

/// Where the first three bytes of the pixels go, as numbers `byte * scale + bias`.
template <typename T>
struct PixelTarget {
  T* data = nullptr;
  int64_t width = 0;
  int64_t height = 0;
  int64_t channel_stride = 0;  ///< in elements, as the others
  int64_t row_stride = 0;
  int64_t pixel_stride = 0;
  bool mirror = false;
  std::array<float, 3> scale = {1, 1, 1};
  std::array<float, 3> bias = {};
};

struct ResampleOptions {
  /// Whether every pixel of the part counts when it is made smaller, as with Pillow; otherwise the
  /// two nearest ones in each direction, as with OpenCV.
  bool antialias = true;
};

/// Brings the part to the size of the target by linear interpolation. T: uint8_t, with numbers
/// rounded, or float.
template <typename T>
void resample(const PixelRows& from, const PixelPart& part, const PixelTarget<T>& to,
              ResampleOptions options = {});

extern template void resample(const PixelRows&, const PixelPart&, const PixelTarget<uint8_t>&,
                              ResampleOptions);
extern template void resample(const PixelRows&, const PixelPart&, const PixelTarget<float>&,
                              ResampleOptions);

}  // namespace tensorpack::detail
