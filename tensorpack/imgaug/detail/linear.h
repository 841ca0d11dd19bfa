// SPDX-License-Identifier: Apache-2.0
// Arithmetic on the channels of images, of which there may be any number.
#pragma once

#include <vector>

#include "tensorpack/imgaug/image.h"

namespace tensorpack::imgaug::detail {

/// What becomes of a value of a channel: scale * value + offset.
struct Linear {
  double scale = 1;
  double offset = 0;
};

/// Applies `channels[c]` to channel c. The result is of the same type; uint8 is rounded and kept in
/// 0..255, float32 only with `clip`.
at::Tensor apply(const at::Tensor& image, const std::vector<Linear>& channels, bool clip);

/// As above, of type float32 and not clipped.
at::Tensor apply_as_float(const at::Tensor& image, const std::vector<Linear>& channels);

struct ChannelStats {
  double min = 0;
  double max = 0;
  double mean = 0;
  double mean_of_squares = 0;
};

/// Of each channel.
std::vector<ChannelStats> channel_stats(const at::Tensor& image);

/// Of all channels together.
ChannelStats together(const std::vector<ChannelStats>& channels);

/// How much each of three channels counts for brightness: red, green and blue, or the other way
/// round. Throws Error, which begins with `[where]`, if the image has another number of them.
std::vector<double> grey_weights(const char* where, const at::Tensor& image, bool rgb);

/// A matrix times the three channels of each pixel; types and clipping as with apply().
at::Tensor mix_channels(const at::Tensor& image, const double (&matrix)[3][3], bool clip);

}  // namespace tensorpack::imgaug::detail
