// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/detail/linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tensorpack/utils/error.h"

namespace tensorpack::imgaug::detail {
namespace {

constexpr int kValues = 256;  // of a byte

uint8_t to_byte(double value) {
  return static_cast<uint8_t>(std::lrint(std::clamp(value, 0.0, 255.0)));
}

// Calls function(in, out, pixels) with two contiguous tensors' data.
template <typename In, typename Out, typename Function>
at::Tensor map_pixels(const at::Tensor& image, at::ScalarType type, Function&& function) {
  const at::Tensor dense = image.contiguous();
  at::Tensor result = at::empty(dense.sizes(), at::TensorOptions(type));
  function(dense.data_ptr<In>(), result.data_ptr<Out>(), dense.size(0) * dense.size(1));
  return result;
}

// Bytes have few values: what becomes of each is computed once.
at::Tensor apply_to_bytes(const at::Tensor& image, const std::vector<Linear>& channels) {
  const size_t count = channels.size();
  std::vector<uint8_t> table(count * kValues);
  for (size_t c = 0; c < count; ++c) {
    for (int value = 0; value < kValues; ++value) {
      table[c * kValues + value] = to_byte(channels[c].scale * value + channels[c].offset);
    }
  }
  return map_pixels<uint8_t, uint8_t>(image, at::kByte,
                                      [&](const uint8_t* in, uint8_t* out, int64_t pixels) {
                                        for (int64_t i = 0; i < pixels; ++i) {
                                          for (size_t c = 0; c < count; ++c)
                                            *out++ = table[c * kValues + *in++];
                                        }
                                      });
}

template <typename In>
at::Tensor apply_to_floats(const at::Tensor& image, const std::vector<Linear>& channels) {
  return map_pixels<In, float>(image, at::kFloat, [&](const In* in, float* out, int64_t pixels) {
    for (int64_t i = 0; i < pixels; ++i) {
      for (const auto& [scale, offset] : channels) {
        *out++ = static_cast<float>(scale * static_cast<double>(*in++) + offset);
      }
    }
  });
}

template <typename T>
void add_to(std::vector<ChannelStats>& channels, const T* data, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i) {
    for (ChannelStats& stats : channels) {
      const auto value = static_cast<double>(*data++);
      stats.min = std::min(stats.min, value);
      stats.max = std::max(stats.max, value);
      stats.mean += value;
      stats.mean_of_squares += value * value;
    }
  }
}

template <typename T, typename Finish>
void mix(const T* in, T* out, int64_t pixels, const double (&m)[3][3], Finish&& finish) {
  for (int64_t i = 0; i < pixels; ++i, in += 3, out += 3) {
    for (int row = 0; row < 3; ++row) {
      out[row] = finish(m[row][0] * in[0] + m[row][1] * in[1] + m[row][2] * in[2]);
    }
  }
}

}  // namespace

at::Tensor apply(const at::Tensor& image, const std::vector<Linear>& channels, bool clip) {
  TP_ASSERT(static_cast<int64_t>(channels.size()) == channels_of(image));
  if (image.scalar_type() == at::kByte) return apply_to_bytes(image, channels);
  at::Tensor result = apply_to_floats<float>(image, channels);
  return clip ? result.clamp_(0, 255) : result;
}

at::Tensor apply_as_float(const at::Tensor& image, const std::vector<Linear>& channels) {
  TP_ASSERT(static_cast<int64_t>(channels.size()) == channels_of(image));
  return image.scalar_type() == at::kByte ? apply_to_floats<uint8_t>(image, channels)
                                          : apply_to_floats<float>(image, channels);
}

std::vector<ChannelStats> channel_stats(const at::Tensor& image) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<ChannelStats> channels(channels_of(image), {.min = kInfinity, .max = -kInfinity});
  const at::Tensor dense = image.contiguous();
  const int64_t pixels = dense.size(0) * dense.size(1);
  if (image.scalar_type() == at::kByte) {
    add_to(channels, dense.data_ptr<uint8_t>(), pixels);
  } else {
    add_to(channels, dense.data_ptr<float>(), pixels);
  }
  for (ChannelStats& stats : channels) {
    stats.mean /= static_cast<double>(pixels);
    stats.mean_of_squares /= static_cast<double>(pixels);
  }
  return channels;
}

ChannelStats together(const std::vector<ChannelStats>& channels) {
  ChannelStats all = channels.front();
  for (size_t c = 1; c < channels.size(); ++c) {
    all.min = std::min(all.min, channels[c].min);
    all.max = std::max(all.max, channels[c].max);
    all.mean += channels[c].mean;
    all.mean_of_squares += channels[c].mean_of_squares;
  }
  all.mean /= static_cast<double>(channels.size());
  all.mean_of_squares /= static_cast<double>(channels.size());
  return all;
}

std::vector<double> grey_weights(const char* where, const at::Tensor& image, bool rgb) {
  TP_CHECK(channels_of(image) == 3, where, "this needs an image of three colours, not of {}.",
           channels_of(image));
  // Those of ITU-R BT.601.
  return rgb ? std::vector<double>{0.299, 0.587, 0.114} : std::vector<double>{0.114, 0.587, 0.299};
}

at::Tensor mix_channels(const at::Tensor& image, const double (&matrix)[3][3], bool clip) {
  TP_ASSERT(channels_of(image) == 3);
  if (image.scalar_type() == at::kByte) {
    return map_pixels<uint8_t, uint8_t>(image, at::kByte,
                                        [&](const uint8_t* in, uint8_t* out, int64_t pixels) {
                                          mix(in, out, pixels, matrix, to_byte);
                                        });
  }
  at::Tensor result =
      map_pixels<float, float>(image, at::kFloat, [&](const float* in, float* out, int64_t pixels) {
        mix(in, out, pixels, matrix, [](double value) { return static_cast<float>(value); });
      });
  return clip ? result.clamp_(0, 255) : result;
}

}  // namespace tensorpack::imgaug::detail
