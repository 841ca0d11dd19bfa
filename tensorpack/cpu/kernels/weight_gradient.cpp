// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cpu/kernels/weight_gradient.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <vector>

#include "tensorpack/cpu/kernels/vectors.h"
#include "tensorpack/utils/parallel_for.h"

namespace tensorpack::cpu {
namespace {

// Images are dealt out to this many sums, which are added in order.
constexpr int64_t kGroups = 16;

struct Sizes {
  int64_t filters, rows, columns;  // of the weight
  int64_t height, width;           // of the gradient
  int64_t grad_width;              // with zeros, up to whole vectors
  int64_t image_width;             // of the input, with its padding and more zeros
};

[[gnu::target("avx2,fma"), gnu::always_inline]] inline float sum_of(const Vector& v) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

// Adds to one row of `Filters` filters, which share what they read of the image.
template <int64_t Columns, int64_t Filters>
[[gnu::target("avx2,fma")]] void add_row(const Sizes& s, const float* grad, const float* image,
                                         float* to) {
  const int64_t plane = s.height * s.grad_width;
  Vector sums[Filters][Columns] = {};
  for (int64_t i = 0; i < s.height; ++i) {
    const float* g = grad + i * s.grad_width;
    const float* x = image + i * s.image_width;
    for (int64_t j = 0; j < s.grad_width; j += kWidth) {
      Vector of_filter[Filters];
      for (int64_t f = 0; f < Filters; ++f) {
        of_filter[f] = load(g + f * plane + j);
      }
      for (int64_t c = 0; c < Columns; ++c) {
        const Vector pixels = load(x + j + c);
        for (int64_t f = 0; f < Filters; ++f) {
          sums[f][c] = multiply_add(of_filter[f], pixels, sums[f][c]);
        }
      }
    }
  }
  for (int64_t f = 0; f < Filters; ++f) {
    for (int64_t c = 0; c < Columns; ++c) {
      to[f * s.rows * Columns + c] += sum_of(sums[f][c]);
    }
  }
}

[[gnu::target("avx2,fma")]] float sum_plane(const Sizes& s, const float* grad) {
  Vector sum = {};
  for (int64_t i = 0; i < s.height * s.grad_width; i += kWidth) {
    sum += load(grad + i);
  }
  return sum_of(sum);
}

template <int64_t Columns>
void add_image(const Sizes& s, const float* grad, const float* image, float* weight, float* bias) {
  const int64_t plane = s.height * s.grad_width;
  const int64_t size = s.rows * Columns;  // of a filter
  for (int64_t row = 0; row < s.rows; ++row) {
    const float* x = image + row * s.image_width;
    float* to = weight + row * Columns;
    int64_t f = 0;
    for (; f + 2 <= s.filters; f += 2) {
      add_row<Columns, 2>(s, grad + f * plane, x, to + f * size);
    }
    if (f < s.filters) add_row<Columns, 1>(s, grad + f * plane, x, to + f * size);
  }
  for (int64_t f = 0; f < s.filters; ++f) bias[f] += sum_plane(s, grad + f * plane);
}

// Rows of `from`, apart by the width of `to`. What lies between them stays.
void copy_rows(const float* from, int64_t rows, int64_t width, float* to, int64_t to_width) {
  for (int64_t i = 0; i < rows; ++i) std::copy_n(from + i * width, width, to + i * to_width);
}

}  // namespace

bool fits_weight_gradient(at::IntArrayRef grad, at::IntArrayRef weight) {
  constexpr int64_t kLeast = int64_t{1} << 17;
  if (c10::multiply_integers(grad) < kLeast) return false;
  return weight[1] == 1 && (weight[3] == 3 || weight[3] == 5 || weight[3] == 7);
}

std::tuple<at::Tensor, at::Tensor> weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                                   at::IntArrayRef weight_size,
                                                   std::array<int64_t, 2> padding) {
  const at::Tensor grads = grad.contiguous(), images = input.contiguous();
  const int64_t grad_width = (grad.size(3) + kWidth - 1) / kWidth * kWidth;
  const Sizes s{.filters = weight_size[0],
                .rows = weight_size[2],
                .columns = weight_size[3],
                .height = grad.size(2),
                .width = grad.size(3),
                .grad_width = grad_width,
                .image_width = grad_width + weight_size[3] - 1};
  const auto add = s.columns == 3 ? add_image<3> : s.columns == 5 ? add_image<5> : add_image<7>;
  const int64_t count = input.size(0), height = input.size(2), width = input.size(3);
  const at::Tensor weights = at::zeros({kGroups, s.filters, 1, s.rows, s.columns}, grad.options());
  const at::Tensor biases = at::zeros({kGroups, s.filters}, grad.options());
  parallel_for(kGroups, [&](int64_t begin, int64_t end) {
    std::vector<float> image((height + 2 * padding[0]) * s.image_width);
    std::vector<float> gradient(s.filters * s.height * s.grad_width);
    for (int64_t group = begin; group < end; ++group) {
      for (int64_t n = group * count / kGroups; n < (group + 1) * count / kGroups; ++n) {
        copy_rows(images.data_ptr<float>() + n * height * width, height, width,
                  image.data() + padding[0] * s.image_width + padding[1], s.image_width);
        copy_rows(grads.data_ptr<float>() + n * s.filters * s.height * s.width,
                  s.filters * s.height, s.width, gradient.data(), s.grad_width);
        add(s, gradient.data(), image.data(), weights.data_ptr<float>() + group * weights.stride(0),
            biases.data_ptr<float>() + group * s.filters);
      }
    }
  });
  return {weights.sum(0), biases.sum(0)};
}

}  // namespace tensorpack::cpu
