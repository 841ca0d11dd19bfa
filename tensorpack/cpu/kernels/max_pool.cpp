// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cpu/kernels/max_pool.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "tensorpack/cpu/kernels/vectors.h"
#include "tensorpack/utils/parallel_for.h"

namespace tensorpack::cpu {
namespace {

using Integers = int32_t __attribute__((vector_size(32)));
using Bytes = uint8_t __attribute__((vector_size(8)));

// Places are 0 and 1 in the upper row, 2 and 3 in the lower one.
constexpr uint8_t kNowhere = 255;  // of a maximum that relu made zero

struct Maxima {
  Vector best;
  Integers places;
};

// Eight squares, from rows of sixteen pixels. NaN is a maximum, and the last one counts.
template <bool Relu>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline Maxima pool_eight(const float* upper,
                                                                         const float* lower) {
  Vector best;
  Integers places = {};
  for (int row = 0; row < 2; ++row) {
    const float* pixels = row == 0 ? upper : lower;
    const Vector a = load(pixels);
    const Vector b = load(pixels + kWidth);
    const Vector values[] = {__builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14),
                             __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15)};
    for (int column = 0; column < 2; ++column) {
      const Vector& value = values[column];
      if (row == 0 && column == 0) {
        best = value;
        continue;
      }
      const Integers takes = (value > best) | (value != value);
      places = takes ? Integers{} + (2 * row + column) : places;
      best = takes ? value : best;
    }
  }
  if (Relu) {
    const Integers is_cut = best <= 0;
    places = is_cut ? Integers{} + kNowhere : places;
    best = is_cut ? Vector{} : best;
  }
  return {best, places};
}

// The last squares of a row, fewer than eight, are pooled in copies that are long enough.
template <bool Relu>
[[gnu::target("avx2,fma")]] void pool_row(const float* upper, const float* lower, int64_t count,
                                          float* y, uint8_t* places) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const Maxima maxima = pool_eight<Relu>(upper + 2 * i, lower + 2 * i);
    const Bytes bytes = __builtin_convertvector(maxima.places, Bytes);
    store(y + i, maxima.best);
    std::memcpy(places + i, &bytes, sizeof(bytes));
  }
  if (i == count) return;
  float rows[2][2 * kWidth] = {};
  std::copy_n(upper + 2 * i, 2 * (count - i), rows[0]);
  std::copy_n(lower + 2 * i, 2 * (count - i), rows[1]);
  const Maxima maxima = pool_eight<Relu>(rows[0], rows[1]);
  for (int64_t k = 0; i + k < count; ++k) {
    y[i + k] = maxima.best[k];
    places[i + k] = static_cast<uint8_t>(maxima.places[k]);
  }
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline void spread_eight(const float* grad,
                                                                         const uint8_t* places,
                                                                         float* upper,
                                                                         float* lower) {
  const Vector gradients = load(grad);
  Bytes bytes;
  std::memcpy(&bytes, places, sizeof(bytes));
  const auto at = __builtin_convertvector(bytes, Integers);
  for (int row = 0; row < 2; ++row) {
    float* pixels = row == 0 ? upper : lower;
    const Vector a = at == 2 * row ? gradients : Vector{};
    const Vector b = at == 2 * row + 1 ? gradients : Vector{};
    store(pixels, __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    store(pixels + kWidth, __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  }
}

[[gnu::target("avx2,fma")]] void spread_row(const float* grad, const uint8_t* places, int64_t count,
                                            float* upper, float* lower) {
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    spread_eight(grad + i, places + i, upper + 2 * i, lower + 2 * i);
  }
  if (i == count) return;
  float gradients[kWidth] = {};
  uint8_t at[kWidth] = {};
  float rows[2][2 * kWidth];
  std::copy_n(grad + i, count - i, gradients);
  std::copy_n(places + i, count - i, at);
  spread_eight(gradients, at, rows[0], rows[1]);
  std::copy_n(rows[0], 2 * (count - i), upper + 2 * i);
  std::copy_n(rows[1], 2 * (count - i), lower + 2 * i);
}

// Pixels of an odd row or column are in no square.
void spread_plane(const float* grad, const uint8_t* places, int64_t height, int64_t width,
                  float* x) {
  for (int64_t row = 0; row + 1 < height; row += 2) {
    float* upper = x + row * width;
    float* lower = upper + width;
    const int64_t made = row / 2 * (width / 2);
    spread_row(grad + made, places + made, width / 2, upper, lower);
    if (width % 2 != 0) upper[width - 1] = lower[width - 1] = 0;
  }
  if (height % 2 != 0) std::fill_n(x + (height - 1) * width, width, 0.F);
}

}  // namespace

std::tuple<at::Tensor, at::Tensor> pool_squares(const at::Tensor& input, bool relu) {
  const int64_t planes = input.size(0) * input.size(1);
  const int64_t width = input.size(3), down = input.size(2) / 2, across = width / 2;
  const at::Tensor from = input.contiguous();
  const at::Tensor y = at::empty({input.size(0), input.size(1), down, across}, input.options());
  const at::Tensor places = at::empty(y.sizes(), input.options().dtype(at::kByte));
  const auto* x = from.data_ptr<float>();
  auto* to = y.data_ptr<float>();
  auto* at = places.data_ptr<uint8_t>();
  const auto pool = relu ? pool_row<true> : pool_row<false>;
  parallel_for(planes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t row = 0; row < down; ++row) {
        const float* upper = x + (i * input.size(2) + 2 * row) * width;
        const int64_t made = (i * down + row) * across;
        pool(upper, upper + width, across, to + made, at + made);
      }
    }
  });
  return {y, places};
}

at::Tensor pool_squares_backward(const at::Tensor& grad, const at::Tensor& places,
                                 at::IntArrayRef input_size) {
  const int64_t planes = input_size[0] * input_size[1];
  const int64_t height = input_size[2], width = input_size[3];
  const int64_t squares = (height / 2) * (width / 2);
  const at::Tensor from = grad.contiguous();
  const at::Tensor result = at::empty(input_size, grad.options());
  const auto* gradients = from.data_ptr<float>();
  const auto* at = places.data_ptr<uint8_t>();
  auto* x = result.data_ptr<float>();
  parallel_for(planes, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      spread_plane(gradients + i * squares, at + i * squares, height, width,
                   x + i * height * width);
    }
  });
  return result;
}

}  // namespace tensorpack::cpu
