// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cpu/kernels/winograd.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "tensorpack/cpu/kernels/vectors.h"
#include "tensorpack/utils/parallel_for.h"

namespace tensorpack::cpu {

namespace {

constexpr int64_t kTile = 4;     // outputs of a tile, in each direction
constexpr int64_t kInputs = 6;   // what they are made of
constexpr int64_t kPoints = 36;  // numbers of a transformed tile
constexpr int64_t kPanel = 16;   // columns that a product makes at a time
constexpr int64_t kRows = 6;     // and rows
// Tiles that are worked on together: what is made of them stays in the cache, and the filters are
// read once for them.
constexpr int64_t kBlock = 96;
// A gradient of a filter that is less than this share of what it is the sum of is rounding. It must
// be zero where a sum of products is: Adam makes a step of the smallest gradient.
constexpr float kRounding = 0x1p-22F;

// How far apart the numbers of two points lie: by a line more than they need, because the same
// number of all points would compete for one place of the cache if they lay a power of two apart.
int64_t between_points(int64_t numbers) { return numbers + kPanel; }

// Where tiles lie in an image of NHWC.
struct Tiling {
  int64_t images, height, width, channels;  // of the image
  int64_t down, across;                     // tiles
  int64_t top, left;                        // what lies before the first tile, outside

  int64_t tiles() const { return images * down * across; }
};

// Numbers of transformed tiles: one of point, tile and channel. Panels hold kPanel channels.
struct Transformed {
  float* data;
  int64_t point, tile, panel;  // strides

  float* at(int64_t t, int64_t channel) const {
    return data + t * tile + channel / kPanel * panel + channel % kPanel;
  }
};

// Notices infinities and NaN among what is stored, on any thread.
class FiniteCheck {
 public:
  // Given a sum of `stored * 0`.
  [[gnu::target("avx2,fma")]] void see(const Vector& zeros) {
    for (int64_t i = 0; i < kWidth; ++i) {
      if (zeros[i] != 0) is_finite_ = false;  // NaN
    }
  }
  bool is_finite() const { return is_finite_; }

 private:
  std::atomic<bool> is_finite_ = true;
};

// ---- one direction of each transform, in place of 6, 4 or 3 vectors `step` apart

[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_inputs(Vector* d,
                                                                             int64_t step) {
  const Vector d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step], d4 = d[4 * step],
               d5 = d[5 * step];
  const Vector a = d4 - 4 * d2, b = d3 - 4 * d1, c = d4 - d2, e = 2 * (d3 - d1);
  d[0] = 4 * d0 - 5 * d2 + d4;
  d[step] = a + b;
  d[2 * step] = a - b;
  d[3 * step] = c + e;
  d[4 * step] = c - e;
  d[5 * step] = 4 * d1 - 5 * d3 + d5;
}

// From 6 to 4.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_outputs(Vector* m,
                                                                              int64_t step) {
  const Vector m0 = m[0], m1 = m[step], m2 = m[2 * step], m3 = m[3 * step], m4 = m[4 * step],
               m5 = m[5 * step];
  const Vector a = m1 + m2, b = m1 - m2, c = m3 + m4, e = m3 - m4;
  m[0] = m0 + a + c;
  m[step] = b + 2 * e;
  m[2 * step] = a + 4 * c;
  m[3 * step] = b + 8 * e + m5;
}

// From 4 to 6: the transpose of transform_outputs().
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_gradients(Vector* y,
                                                                                int64_t step) {
  const Vector y0 = y[0], y1 = y[step], y2 = y[2 * step], y3 = y[3 * step];
  const Vector a = y0 + y2, b = y1 + y3, c = y0 + 4 * y2, e = 2 * y1 + 8 * y3;
  y[step] = a + b;
  y[2 * step] = a - b;
  y[3 * step] = c + e;
  y[4 * step] = c - e;
  y[5 * step] = y3;
}

// From 3 to 6.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_filter(Vector* g,
                                                                             int64_t step) {
  const Vector g0 = g[0], g1 = g[step], g2 = g[2 * step];
  const Vector a = (g0 + g2) * (-1.F / 6), b = g1 * (-1.F / 6);
  const Vector c = g0 * (1.F / 24) + g2 * (1.F / 6), e = g1 * (1.F / 12);
  g[0] = g0 * 0.25F;
  g[step] = a + b;
  g[2 * step] = a - b;
  g[3 * step] = c + e;
  g[4 * step] = c - e;
  g[5 * step] = g2;
}

// From 6 to 3: the transpose of transform_filter().
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_filter_gradient(
    Vector* u, int64_t step) {
  const Vector u0 = u[0], u1 = u[step], u2 = u[2 * step], u3 = u[3 * step], u4 = u[4 * step],
               u5 = u[5 * step];
  const Vector a = (u1 + u2) * (-1.F / 6), b = u3 + u4;
  u[0] = u0 * 0.25F + a + b * (1.F / 24);
  u[step] = (u2 - u1) * (1.F / 6) + (u3 - u4) * (1.F / 12);
  u[2 * step] = a + b * (1.F / 6) + u5;
}

// What transform_filter_gradient() adds up, without its signs.
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void bound_filter_gradient(Vector* u,
                                                                                  int64_t step) {
  const Vector a = (u[step] + u[2 * step]) * (1.F / 6), b = u[3 * step] + u[4 * step];
  u[0] = u[0] * 0.25F + a + b * (1.F / 24);
  u[step] = a + b * (1.F / 12);
  u[2 * step] = a + b * (1.F / 6) + u[5 * step];
}

// Both directions: of a square of From by From vectors one of To by To, in rows of kInputs.
template <int64_t From, int64_t To, void (*Transform)(Vector*, int64_t)>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_square(Vector* square) {
  for (int64_t i = 0; i < From; ++i) Transform(square + i, kInputs);
  for (int64_t i = 0; i < To; ++i) Transform(square + i * kInputs, 1);
}

// ---- tiles

struct Place {
  int64_t image, row, column;  // of the first element; may lie outside
};

inline Place place_of(const Tiling& tiling, int64_t tile) {
  const int64_t across = tile % tiling.across, line = tile / tiling.across;
  return {line / tiling.down, line % tiling.down * kTile - tiling.top,
          across * kTile - tiling.left};
}

// A square of `Size` pixels, with zeros for what lies outside, into rows of kInputs vectors.
template <int64_t Size>
[[gnu::target("avx2,fma"), gnu::always_inline]] inline void load_square(
    const float* image, const Tiling& tiling, const Place& place, int64_t channel, Vector* d) {
  for (int64_t i = 0; i < Size; ++i) {
    const int64_t row = place.row + i;
    for (int64_t j = 0; j < Size; ++j) {
      const int64_t column = place.column + j;
      const bool is_inside =
          row >= 0 && row < tiling.height && column >= 0 && column < tiling.width;
      d[i * kInputs + j] =
          is_inside ? load(image +
                           ((place.image * tiling.height + row) * tiling.width + column) *
                               tiling.channels +
                           channel)
                    : Vector{};
    }
  }
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline void store_points(const Vector* d, float* to,
                                                                         int64_t stride) {
  for (int64_t point = 0; point < kPoints; ++point) {
    store(to + point * stride, d[point]);
  }
}

// Tiles of an image, from `first + begin` on.
template <int64_t Size, void (*Transform)(Vector*, int64_t)>
[[gnu::target("avx2,fma")]] void transform_tiles(const float* image, const Tiling& tiling,
                                                 int64_t first, int64_t begin, int64_t end,
                                                 const Transformed& to) {
  for (int64_t t = begin; t < end; ++t) {
    const Place place = place_of(tiling, first + t);
    for (int64_t channel = 0; channel < tiling.channels; channel += kWidth) {
      Vector d[kPoints];
      load_square<Size>(image, tiling, place, channel, d);
      transform_square<Size, kInputs, Transform>(d);
      store_points(d, to.at(t, channel), to.point);
    }
  }
}

// Of the inputs of a convolution, and of the gradients of its outputs.
constexpr auto transform_input_tiles = transform_tiles<kInputs, transform_inputs>;
constexpr auto transform_gradient_tiles = transform_tiles<kTile, transform_gradients>;

[[gnu::target("avx2,fma")]] void transform_output_tiles(const Transformed& from, const float* bias,
                                                        float* image, const Tiling& tiling,
                                                        int64_t first, int64_t begin, int64_t end,
                                                        FiniteCheck& check) {
  Vector zeros{};
  for (int64_t t = begin; t < end; ++t) {
    const Place place = place_of(tiling, first + t);
    const int64_t rows = std::min(kTile, tiling.height - place.row);
    const int64_t columns = std::min(kTile, tiling.width - place.column);
    for (int64_t channel = 0; channel < tiling.channels; channel += kWidth) {
      Vector m[kPoints];
      const float* source = from.at(t, channel);
      for (int64_t point = 0; point < kPoints; ++point) {
        m[point] = load(source + point * from.point);
      }
      transform_square<kInputs, kTile, transform_outputs>(m);
      const Vector added = bias == nullptr ? Vector{} : load(bias + channel);
      for (int64_t i = 0; i < rows; ++i) {
        float* line =
            image +
            ((place.image * tiling.height + place.row + i) * tiling.width + place.column) *
                tiling.channels +
            channel;
        for (int64_t j = 0; j < columns; ++j) {
          const Vector value = m[i * kInputs + j] + added;
          store(line + j * tiling.channels, value);
          zeros += value * 0;
        }
      }
    }
  }
  check.see(zeros);
}

// ---- filters, which lie as OHWI

struct Filters {
  const float* data;
  int64_t outputs, inputs;

  const float* at(int64_t output, int64_t row, int64_t column, int64_t input) const {
    return data + ((output * 3 + row) * 3 + column) * inputs + input;
  }
};

[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transform_one_filter(
    const Filters& filters, int64_t output, int64_t input, bool turned, Vector* g) {
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t j = 0; j < 3; ++j) {
      g[i * kInputs + j] =
          load(turned ? filters.at(output, 2 - i, 2 - j, input) : filters.at(output, i, j, input));
    }
  }
  transform_square<3, kInputs, transform_filter>(g);
}

// As panels of input channels, one row for each output channel: for the gradient of the input.
[[gnu::target("avx2,fma")]] void transform_filters_turned(const Filters& filters, int64_t begin,
                                                          int64_t end, float* to) {
  const int64_t point = between_points(filters.outputs * filters.inputs);
  const int64_t panel = filters.outputs * kPanel;
  for (int64_t output = begin; output < end; ++output) {
    for (int64_t input = 0; input < filters.inputs; input += kWidth) {
      Vector g[kPoints];
      transform_one_filter(filters, output, input, /*turned=*/true, g);
      store_points(g, to + input / kPanel * panel + output * kPanel + input % kPanel, point);
    }
  }
}

[[gnu::target("avx2,fma"), gnu::always_inline]] inline void transpose(Vector* v) {
  Vector s[kWidth], r[kWidth];
  for (int i = 0; i < 8; i += 2) {
    s[i] = __builtin_shufflevector(v[i], v[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = __builtin_shufflevector(v[i], v[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = __builtin_shufflevector(s[i + j], s[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
      r[i + 2 * j + 1] =
          __builtin_shufflevector(s[i + j], s[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    v[i] = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    v[i + 4] = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// As panels of output channels, one row for each input channel: for the convolution.
[[gnu::target("avx2,fma")]] void transform_filters(const Filters& filters, int64_t begin,
                                                   int64_t end, float* to) {
  const int64_t point = between_points(filters.outputs * filters.inputs);
  const int64_t panel = filters.inputs * kPanel;
  for (int64_t group = begin; group < end; ++group) {
    const int64_t output = group * kWidth;
    for (int64_t input = 0; input < filters.inputs; input += kWidth) {
      Vector g[kWidth][kPoints];
      for (int64_t i = 0; i < kWidth; ++i) {
        transform_one_filter(filters, output + i, input, /*turned=*/false, g[i]);
      }
      float* here = to + output / kPanel * panel + input * kPanel + output % kPanel;
      for (int64_t p = 0; p < kPoints; ++p) {
        Vector v[kWidth];
        for (int64_t i = 0; i < kWidth; ++i) v[i] = g[i][p];
        transpose(v);
        for (int64_t i = 0; i < kWidth; ++i) {
          store(here + p * point + i * kPanel, v[i]);
        }
      }
    }
  }
}

[[gnu::target("avx2,fma")]] void transform_filter_gradients(const float* from, int64_t inputs,
                                                            int64_t outputs, int64_t begin,
                                                            int64_t end, float* to,
                                                            FiniteCheck& check) {
  Vector zeros{};
  for (int64_t output = begin; output < end; ++output) {
    for (int64_t input = 0; input < inputs; input += kWidth) {
      Vector u[kPoints], bound[kPoints];
      for (int64_t point = 0; point < kPoints; ++point) {
        u[point] = load(from + point * between_points(outputs * inputs) + output * inputs + input);
        bound[point] = u[point] < 0 ? -u[point] : u[point];
      }
      transform_square<kInputs, 3, transform_filter_gradient>(u);
      transform_square<kInputs, 3, bound_filter_gradient>(bound);
      for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
          const Vector value = u[i * kInputs + j], noise = kRounding * bound[i * kInputs + j];
          store(to + ((output * 3 + i) * 3 + j) * inputs + input,
                ((value < noise) & (-value < noise)) ? Vector{} : value);
          zeros += value * 0;
        }
      }
    }
  }
  check.see(zeros);
}

// ---- products

// Rows times a panel: to[r][0..15] (+)= sum over d of a[r][d] * b[d][0..15].
struct Product {
  const float* a;
  int64_t a_row, a_depth;  // strides
  const float* b;          // rows of kPanel
  float* to;
  int64_t to_row;
  int64_t depth;
  bool adds;
};

template <int64_t Rows>
[[gnu::target("avx2,fma")]] void multiply_rows(const Product& p) {
  Vector sum[Rows][2];
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t i = 0; i < 2; ++i) {
      sum[r][i] = p.adds ? load(p.to + r * p.to_row + i * kWidth) : Vector{};
    }
  }
  const float* a = p.a;
  const float* b = p.b;
  for (int64_t d = 0; d < p.depth; ++d, a += p.a_depth, b += kPanel) {
    const Vector b0 = load(b);
    const Vector b1 = load(b + kWidth);
    for (int64_t r = 0; r < Rows; ++r) {
      const Vector factor = _mm256_set1_ps(a[r * p.a_row]);
      sum[r][0] = multiply_add(factor, b0, sum[r][0]);
      sum[r][1] = multiply_add(factor, b1, sum[r][1]);
    }
  }
  for (int64_t r = 0; r < Rows; ++r) {
    for (int64_t i = 0; i < 2; ++i) {
      store(p.to + r * p.to_row + i * kWidth, sum[r][i]);
    }
  }
}

void multiply(Product p, int64_t rows) {
  static_assert(kRows == 6);
  for (; rows >= kRows; rows -= kRows) {
    multiply_rows<kRows>(p);
    p.a += kRows * p.a_row;
    p.to += kRows * p.to_row;
  }
  switch (rows) {
    case 5:
      return multiply_rows<5>(p);
    case 4:
      return multiply_rows<4>(p);
    case 3:
      return multiply_rows<3>(p);
    case 2:
      return multiply_rows<2>(p);
    case 1:
      return multiply_rows<1>(p);
    default:
      return;
  }
}

// ---- the whole

int64_t tiles_over(int64_t size) { return (size + kTile - 1) / kTile; }

// Room for so many numbers of each point.
at::Tensor scratch(int64_t numbers) {
  return at::empty({kPoints * between_points(numbers)}, at::kFloat);
}

at::Tensor image_like(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options(), at::MemoryFormat::ChannelsLast);
}

at::Tensor channels_last(const at::Tensor& tensor) {
  return tensor.contiguous(at::MemoryFormat::ChannelsLast);
}

// How an image, and what is made of it by a convolution, are cut into the same tiles.
struct Tilings {
  Tiling image;
  Tiling result;
};

Tilings tilings_of(const at::Tensor& image, const at::Tensor& result, const Padding& padding) {
  const int64_t down = tiles_over(result.size(2)), across = tiles_over(result.size(3));
  return {{image.size(0), image.size(2), image.size(3), image.size(1), down, across, padding[0],
           padding[1]},
          {result.size(0), result.size(2), result.size(3), result.size(1), down, across, 0, 0}};
}

// The convolution of an image with transformed filters: panels of the result's channels. False if
// it is not finite.
bool convolve(const at::Tensor& image, const at::Tensor& filters, const float* bias,
              const Padding& padding, const at::Tensor& result) {
  const int64_t inputs = image.size(1), outputs = result.size(1);
  const Tilings tilings = tilings_of(image, result, padding);
  const Tiling &from = tilings.image, &to = tilings.result;
  const int64_t block = std::min(kBlock, from.tiles());
  const at::Tensor before = scratch(block * inputs);
  const at::Tensor after = scratch(block * outputs);
  const Transformed tiles{before.data_ptr<float>(), between_points(block * inputs), inputs, kPanel};
  const Transformed made{after.data_ptr<float>(), between_points(block * outputs), outputs, kPanel};
  const float* source = image.data_ptr<float>();
  const float* factors = filters.data_ptr<float>();
  float* target = result.data_ptr<float>();
  const int64_t panels = outputs / kPanel;

  FiniteCheck check;
  for (int64_t first = 0; first < from.tiles(); first += block) {
    const int64_t count = std::min(block, from.tiles() - first);
    parallel_for(count, [&](int64_t begin, int64_t end) {
      transform_input_tiles(source, from, first, begin, end, tiles);
    });
    parallel_for(kPoints * panels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t point = i / panels, panel = i % panels;
        multiply({.a = tiles.data + point * tiles.point,
                  .a_row = inputs,
                  .a_depth = 1,
                  .b = factors + point * between_points(inputs * outputs) + panel * inputs * kPanel,
                  .to = made.data + point * made.point + panel * kPanel,
                  .to_row = outputs,
                  .depth = inputs,
                  .adds = false},
                 count);
      }
    });
    parallel_for(count, [&](int64_t begin, int64_t end) {
      transform_output_tiles(made, bias, target, to, first, begin, end, check);
    });
  }
  return check.is_finite();
}

}  // namespace

bool fits_winograd(at::IntArrayRef input, at::IntArrayRef weight, const Padding& padding) {
  // As measured: fewer channels gain nothing, and for fewer tiles transforming filters costs more
  // than it gains.
  constexpr int64_t kLeastChannels = 32, kLeastTiles = 64;
  const int64_t height = input[2] + 2 * padding[0] - 2, width = input[3] + 2 * padding[1] - 2;
  const int64_t tiles = tiles_over(height) * tiles_over(width);
  const bool is_wide = std::min(weight[0], weight[1]) >= kLeastChannels &&
                       weight[0] % kPanel == 0 && weight[1] % kPanel == 0;
  const bool is_filled = 2 * height * width >= tiles * kTile * kTile;
  return weight[2] == 3 && weight[3] == 3 && is_wide && padding[0] <= 2 && padding[1] <= 2 &&
         height > 0 && width > 0 && is_filled && input[0] * tiles >= kLeastTiles;
}

at::Tensor winograd(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    const Padding& padding) {
  const at::Tensor image = channels_last(input), filters = channels_last(weight);
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  const at::Tensor transformed = scratch(outputs * inputs);
  const Filters source{filters.data_ptr<float>(), outputs, inputs};
  parallel_for(outputs / kWidth, [&](int64_t begin, int64_t end) {
    transform_filters(source, begin, end, transformed.data_ptr<float>());
  });
  const at::Tensor result =
      image_like(input, {input.size(0), outputs, input.size(2) + 2 * padding[0] - 2,
                         input.size(3) + 2 * padding[1] - 2});
  const at::Tensor added = bias.defined() ? bias.contiguous() : bias;
  const bool is_finite = convolve(
      image, transformed, added.defined() ? added.data_ptr<float>() : nullptr, padding, result);
  return is_finite ? result : plain_convolution(image, filters, bias, padding);
}

at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight,
                                   at::IntArrayRef input_size, const Padding& padding) {
  const at::Tensor image = channels_last(grad), filters = channels_last(weight);
  const int64_t outputs = weight.size(0), inputs = weight.size(1);
  const at::Tensor transformed = scratch(outputs * inputs);
  const Filters source{filters.data_ptr<float>(), outputs, inputs};
  parallel_for(outputs, [&](int64_t begin, int64_t end) {
    transform_filters_turned(source, begin, end, transformed.data_ptr<float>());
  });
  const at::Tensor result = image_like(grad, input_size);
  const bool is_finite =
      convolve(image, transformed, nullptr, {2 - padding[0], 2 - padding[1]}, result);
  return is_finite ? result : plain_input_gradient(image, filters, input_size, padding);
}

at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                    const Padding& padding) {
  const at::Tensor outer = channels_last(grad), image = channels_last(input);
  const int64_t outputs = grad.size(1), inputs = input.size(1);
  const Tilings tilings = tilings_of(input, grad, padding);
  const Tiling &from = tilings.image, &of_grad = tilings.result;
  const int64_t block = std::min(kBlock, from.tiles());
  const at::Tensor inputs_made = scratch(block * inputs);
  const at::Tensor grads_made = scratch(block * outputs);
  const at::Tensor sums = scratch(outputs * inputs);
  const Transformed tiles{inputs_made.data_ptr<float>(), between_points(block * inputs), kPanel,
                          block * kPanel};
  const Transformed grads{grads_made.data_ptr<float>(), between_points(block * outputs), outputs,
                          kPanel};
  const int64_t panels = inputs / kPanel;
  for (int64_t first = 0; first < from.tiles(); first += block) {
    const int64_t count = std::min(block, from.tiles() - first);
    parallel_for(count, [&](int64_t begin, int64_t end) {
      transform_input_tiles(image.data_ptr<float>(), from, first, begin, end, tiles);
      transform_gradient_tiles(outer.data_ptr<float>(), of_grad, first, begin, end, grads);
    });
    parallel_for(kPoints * panels, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t point = i / panels, panel = i % panels;
        multiply({.a = grads.data + point * grads.point,
                  .a_row = 1,
                  .a_depth = outputs,
                  .b = tiles.data + point * tiles.point + panel * tiles.panel,
                  .to = sums.data_ptr<float>() + point * between_points(outputs * inputs) +
                        panel * kPanel,
                  .to_row = inputs,
                  .depth = count,
                  .adds = first > 0},
                 outputs);
      }
    });
  }
  const at::Tensor result = image_like(input, {outputs, inputs, 3, 3});
  FiniteCheck check;
  parallel_for(outputs, [&](int64_t begin, int64_t end) {
    transform_filter_gradients(sums.data_ptr<float>(), inputs, outputs, begin, end,
                               result.data_ptr<float>(), check);
  });
  return check.is_finite() ? result
                           : plain_weight_gradient(outer, image, {outputs, inputs, 3, 3}, padding);
}

}  // namespace tensorpack::cpu
