// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>
#include <vector>

#include "tensorpack/utils/processor.h"

namespace tensorpack::detail {
namespace {

// A pixel as numbers. The compiler has operators for it.
using Pixel [[gnu::vector_size(16)]] = float;

// How much each of `count` neighbours counts for each of the results along one axis.
struct Taps {
  int64_t count = 0;
  std::vector<int64_t> first;
  std::vector<float> weights;  // `count` for each result
};

Taps make_taps(double begin, double length, int64_t results, int64_t available, bool antialias) {
  const double step = length / static_cast<double>(results);
  const double reach = antialias ? std::max(step, 1.0) : 1.0;
  const auto lowest = static_cast<int64_t>(std::floor(begin));
  const auto end = std::min(static_cast<int64_t>(std::ceil(begin + length)), available);
  Taps taps;
  taps.count = std::min(static_cast<int64_t>(std::ceil(2 * reach)), end - lowest);
  taps.first.resize(results);
  taps.weights.resize(results * taps.count);
  for (int64_t i = 0; i < results; ++i) {
    const double center = begin + (static_cast<double>(i) + 0.5) * step;
    const auto nearest = static_cast<int64_t>(std::floor(center - reach + 0.5));
    const int64_t first = std::clamp(nearest, lowest, end - taps.count);
    taps.first[i] = first;
    float* weights = taps.weights.data() + i * taps.count;
    double sum = 0;
    for (int64_t k = 0; k < taps.count; ++k) {
      const double distance = std::abs(static_cast<double>(first + k) + 0.5 - center) / reach;
      weights[k] = static_cast<float>(std::max(0.0, 1 - distance));
      sum += weights[k];
    }
    for (int64_t k = 0; k < taps.count; ++k) {
      weights[k] = static_cast<float>(weights[k] / sum);
    }
  }
  return taps;
}

// What the loops need, worked out before them.
struct Plan {
  Taps rows;
  Taps columns;
  int64_t left = 0;  // the columns of the source that are used
  int64_t width = 0;
};

// Adds up to three rows to what is there, or begins with them: as few passes as possible.
template <int kRows, bool kBegins>
[[gnu::always_inline]] inline void add_rows(const uint8_t* row, int64_t stride,
                                            const float* weights, float* __restrict to,
                                            int64_t size) {
  for (int64_t i = 0; i < size; ++i) {
    float sum = weights[0] * static_cast<float>(row[i]);
    if constexpr (kRows > 1) sum += weights[1] * static_cast<float>(row[i + stride]);
    if constexpr (kRows > 2) sum += weights[2] * static_cast<float>(row[i + 2 * stride]);
    to[i] = kBegins ? sum : to[i] + sum;
  }
}

template <bool kBegins>
[[gnu::always_inline]] inline void add_rows(int64_t rows, const uint8_t* row, int64_t stride,
                                            const float* weights, float* to, int64_t size) {
  if (rows == 1) return add_rows<1, kBegins>(row, stride, weights, to, size);
  if (rows == 2) return add_rows<2, kBegins>(row, stride, weights, to, size);
  add_rows<3, kBegins>(row, stride, weights, to, size);
}

[[gnu::always_inline]] inline void blend_rows(const PixelRows& from, const Plan& plan, int64_t y,
                                              float* blended) {
  const int64_t size = plan.width * 4;
  const float* weights = plan.rows.weights.data() + y * plan.rows.count;
  const uint8_t* row = from.data + plan.rows.first[y] * from.stride + plan.left * 4;
  add_rows<true>(std::min<int64_t>(plan.rows.count, 3), row, from.stride, weights, blended, size);
  for (int64_t k = 3; k < plan.rows.count; k += 3) {
    add_rows<false>(std::min<int64_t>(plan.rows.count - k, 3), row + k * from.stride, from.stride,
                    weights + k, blended, size);
  }
}

template <typename T>
[[gnu::always_inline]] inline void store(const Pixel& pixel, T* out, int64_t channel_stride) {
  for (int64_t c = 0; c < 3; ++c) {
    if constexpr (std::is_same_v<T, uint8_t>) {
      out[c * channel_stride] = static_cast<uint8_t>(std::clamp(pixel[c] + 0.5F, 0.0F, 255.0F));
    } else {
      out[c * channel_stride] = pixel[c];
    }
  }
}

// Four pixels to where each channel lies by itself.
[[gnu::always_inline]] inline void store_planes(const Pixel* p, float* out,
                                                int64_t channel_stride) {
  const Pixel red_green_01 = __builtin_shufflevector(p[0], p[1], 0, 4, 1, 5);
  const Pixel red_green_23 = __builtin_shufflevector(p[2], p[3], 0, 4, 1, 5);
  const Pixel blue_01 = __builtin_shufflevector(p[0], p[1], 2, 6, 3, 7);
  const Pixel blue_23 = __builtin_shufflevector(p[2], p[3], 2, 6, 3, 7);
  const Pixel planes[3] = {__builtin_shufflevector(red_green_01, red_green_23, 0, 1, 4, 5),
                           __builtin_shufflevector(red_green_01, red_green_23, 2, 3, 6, 7),
                           __builtin_shufflevector(blue_01, blue_23, 0, 1, 4, 5)};
  for (int64_t c = 0; c < 3; ++c) std::memcpy(out + c * channel_stride, &planes[c], sizeof(Pixel));
}

template <typename T, int64_t kTaps>  // 0: any number
[[gnu::always_inline]] inline void resample_row(const Plan& plan, const PixelTarget<T>& to,
                                                const Pixel* blended, T* out) {
  const Pixel scale = {to.scale[0], to.scale[1], to.scale[2], 0};
  const Pixel bias = {to.bias[0], to.bias[1], to.bias[2], 0};
  const int64_t taps = kTaps == 0 ? plan.columns.count : kTaps;
  const auto value = [&](int64_t x) {
    const int64_t source = to.mirror ? to.width - 1 - x : x;
    const float* weights = plan.columns.weights.data() + source * taps;
    const Pixel* near = blended + plan.columns.first[source] - plan.left;
    Pixel sum = weights[0] * near[0];
    for (int64_t k = 1; k < taps; ++k) sum += weights[k] * near[k];
    return sum * scale + bias;
  };
  int64_t x = 0;
  if constexpr (std::is_same_v<T, float>) {
    for (; to.pixel_stride == 1 && x + 4 <= to.width; x += 4) {
      const Pixel four[4] = {value(x), value(x + 1), value(x + 2), value(x + 3)};
      store_planes(four, out + x, to.channel_stride);
    }
  }
  for (; x < to.width; ++x) store(value(x), out + x * to.pixel_stride, to.channel_stride);
}

template <typename T>
[[gnu::always_inline]] inline void resample_all(const PixelRows& from, const Plan& plan,
                                                const PixelTarget<T>& to, Pixel* blended) {
  for (int64_t y = 0; y < to.height; ++y) {
    blend_rows(from, plan, y, reinterpret_cast<float*>(blended));
    T* out = to.data + y * to.row_stride;
    switch (plan.columns.count) {
      case 2:
        resample_row<T, 2>(plan, to, blended, out);
        break;
      case 3:
        resample_row<T, 3>(plan, to, blended, out);
        break;
      default:
        resample_row<T, 0>(plan, to, blended, out);
    }
  }
}

#if defined(__x86_64__)
// Without FMA, which compilers use here and there: pixels are the same wherever they lie, and on
// every processor.
template <typename T>
[[gnu::target("avx2")]] void resample_avx2(const PixelRows& from, const Plan& plan,
                                           const PixelTarget<T>& to, Pixel* blended) {
  resample_all(from, plan, to, blended);
}
#else
template <typename T>
void resample_avx2(const PixelRows& from, const Plan& plan, const PixelTarget<T>& to,
                   Pixel* blended) {
  resample_all(from, plan, to, blended);
}
#endif

}  // namespace

template <typename T>
void resample(const PixelRows& from, const PixelPart& part, const PixelTarget<T>& to,
              ResampleOptions options) {
  Plan plan{.rows = make_taps(part.top, part.height, to.height, from.height, options.antialias),
            .columns = make_taps(part.left, part.width, to.width, from.width, options.antialias)};
  const auto right = std::min(static_cast<int64_t>(std::ceil(part.left + part.width)), from.width);
  plan.left = static_cast<int64_t>(std::floor(part.left));
  plan.width = right - plan.left;
  thread_local std::vector<Pixel> blended;
  blended.resize(plan.width);
  if (has_avx2()) {
    resample_avx2(from, plan, to, blended.data());
  } else {
    resample_all(from, plan, to, blended.data());
  }
}

template void resample(const PixelRows&, const PixelPart&, const PixelTarget<uint8_t>&,
                       ResampleOptions);
template void resample(const PixelRows&, const PixelPart&, const PixelTarget<float>&,
                       ResampleOptions);

}  // namespace tensorpack::detail
