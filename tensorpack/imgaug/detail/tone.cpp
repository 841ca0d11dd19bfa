// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/imgaug/detail/tone.h"

#include <algorithm>
#include <array>
#include <opencv2/imgproc.hpp>

#include "tensorpack/imgaug/mat.h"

namespace tensorpack::imgaug::detail {
namespace {

using Table = std::array<uchar, 256>;

// function(in) for bytes; floats are made bytes before it, and floats again behind it.
template <typename Function>
at::Tensor map_bytes(const at::Tensor& image, Function&& function) {
  return map_mat(image, [&](const cv::Mat& in) {
    cv::Mat bytes = in;
    if (in.depth() != CV_8U) in.convertTo(bytes, CV_8U);
    cv::Mat out = function(bytes);
    if (in.depth() != CV_8U) out.convertTo(out, in.depth());
    return out;
  });
}

cv::Mat look_up(const cv::Mat& in, const Table& table) {
  cv::Mat out;
  cv::LUT(in, cv::Mat(1, 256, CV_8U, const_cast<uchar*>(table.data())), out);
  return out;
}

// Each channel through a table that is made for it.
template <typename MakeTable>
cv::Mat look_up_channels(const cv::Mat& in, MakeTable&& make_table) {
  std::vector<cv::Mat> channels;
  cv::split(in, channels);
  for (cv::Mat& channel : channels) channel = look_up(channel, make_table(channel));
  cv::Mat out;
  cv::merge(channels, out);
  return out;
}

template <typename Function>
Table table_of(Function&& function) {
  Table table;
  for (int i = 0; i < 256; ++i) table[i] = cv::saturate_cast<uchar>(function(i));
  return table;
}

Table stretching(const cv::Mat& channel) {
  double low = 0;
  double high = 0;
  cv::minMaxLoc(channel, &low, &high);
  if (low == high) return table_of([](int value) { return value; });
  return table_of([&](int value) { return (value - low) * 255 / (high - low); });
}

std::array<int64_t, 256> histogram(const cv::Mat& channel) {
  std::array<int64_t, 256> counts = {};
  for (int y = 0; y < channel.rows; ++y) {
    const uchar* row = channel.ptr<uchar>(y);
    for (int x = 0; x < channel.cols; ++x) ++counts[row[x]];
  }
  return counts;
}

// A value becomes the share, of 255, of values below it; those of the highest one are not counted,
// so that it becomes 255.
Table equalizing(const cv::Mat& channel) {
  const auto counts = histogram(channel);
  const auto highest =
      std::find_if(counts.rbegin(), counts.rend(), [](int64_t n) { return n > 0; });
  const int64_t step = (static_cast<int64_t>(channel.total()) - *highest) / 255;
  if (step == 0) return table_of([](int value) { return value; });
  int64_t below = 0;
  return table_of([&](int value) {
    const int64_t share = (below + step / 2) / step;
    below += counts[value];
    return static_cast<int>(std::min<int64_t>(share, 255));
  });
}

}  // namespace

at::Tensor sharpen(const at::Tensor& image, double factor) {
  if (image.size(0) < 3 || image.size(1) < 3) return image;
  return map_mat(image, [&](const cv::Mat& in) {
    const cv::Matx33f neighbourhood(1, 1, 1, 1, 5, 1, 1, 1, 1);
    cv::Mat smooth;
    cv::filter2D(in, smooth, -1, cv::Mat(neighbourhood) / 13);
    cv::Mat out = in.clone();
    const cv::Rect inside(1, 1, in.cols - 2, in.rows - 2);
    cv::addWeighted(in(inside), factor, smooth(inside), 1 - factor, 0, out(inside));
    if (in.depth() == CV_32F) {
      cv::max(out, 0, out);
      cv::min(out, 255, out);
    }
    return out;
  });
}

at::Tensor posterize(const at::Tensor& image, int bits) {
  const int mask = 0xff & ~((1 << (8 - bits)) - 1);
  return map_bytes(image, [&](const cv::Mat& in) {
    return look_up(in, table_of([&](int value) { return value & mask; }));
  });
}

at::Tensor solarize(const at::Tensor& image, double threshold) {
  return map_bytes(image, [&](const cv::Mat& in) {
    return look_up(in,
                   table_of([&](int value) { return value < threshold ? value : 255 - value; }));
  });
}

at::Tensor auto_contrast(const at::Tensor& image) {
  return map_bytes(image, [](const cv::Mat& in) { return look_up_channels(in, stretching); });
}

at::Tensor equalize(const at::Tensor& image) {
  return map_bytes(image, [](const cv::Mat& in) { return look_up_channels(in, equalizing); });
}

}  // namespace tensorpack::imgaug::detail
