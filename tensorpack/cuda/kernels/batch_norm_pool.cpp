// SPDX-License-Identifier: Apache-2.0
// Note [Pooling what is normalised]
// To normalise keeps the order of a channel's numbers, or turns it round, and relu keeps it, too.
// So the largest of a window is looked for among the inputs, and is the only one that is
// normalised: what batch norm would write for pooling to read is never there. The result has the
// same bits. Where two inputs differ, but not when they are normalised and rounded, the gradient
// goes to the larger one, not to the first.
//
// Backward, an input has a gradient only if a window took it, so the sums for weight and bias are
// over the windows alone, of which the inputs that they took are kept. They are those of batch norm
// and relu over an image of the inputs that were taken. The pass that makes the gradient of the
// input finds what the windows give to each place, which nobody writes, either.
#include "tensorpack/cuda/kernels/batch_norm_pool.h"

#include <ATen/ATen.h>

#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

// Per multiprocessor. One of them runs at a time, with registers for many loads: without that bound
// the compiler uses fewer, and the kernels take 31 and 7 % longer on an H200; with two, 5 and 74 %.
constexpr int kBlocks = 2;
constexpr int kUnroll = 1;  // a window is many loads

// Numbers as words that are compared and chosen from by bits, two in a word where they have 16.
constexpr const char* kWords = R"cuda(
constexpr bool kPairs = sizeof(T) == 2 && W % 2 == 0;
constexpr int kNumbers = kPairs ? 2 : 1, kWords = W / kNumbers;

__device__ __forceinline__ T number(unsigned word, int i) {
  T v;
  if constexpr (kPairs) *reinterpret_cast<unsigned short*>(&v) = (unsigned short)(word >> 16 * (i % 2));
  else from_float(__uint_as_float(word), v);
  return v;
}
__device__ __forceinline__ unsigned word_of(const Vector<T, W>& v, int w) {
  if constexpr (kPairs) return reinterpret_cast<const unsigned*>(&v)[w];
  else return __float_as_uint(to_float(v.item[w]));
}
// A word with this in the bits of one number, or of all.
__device__ __forceinline__ unsigned bits_of_number(unsigned bits, int i) {
  return kPairs ? (bits & 0xffffu) << 16 * (i % 2) : bits;
}
__device__ __forceinline__ unsigned in_all(unsigned bits) { return kPairs ? bits * 0x10001u : bits; }

// All bits of the numbers of a that are greater than those of b.
__device__ __forceinline__ unsigned greater_of_each(unsigned a, unsigned b) {
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) {
    if (to_float(number(a, i)) > to_float(number(b, i))) all |= bits_of_number(~0u, i);
  }
  return all;
}
template <class Type>
__device__ __forceinline__ unsigned greater(unsigned a, unsigned b, const Type*) {
  return greater_of_each(a, b);
}
#ifdef __CUDACC_RTC__
__device__ __forceinline__ unsigned greater(unsigned a, unsigned b, const f16*) {
  if constexpr (!kPairs) return greater_of_each(a, b);
  unsigned all;
  asm("set.gt.u32.f16x2 %0, %1, %2;" : "=r"(all) : "r"(a), "r"(b));
  return all;
}
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ unsigned greater(unsigned a, unsigned b, const bf16*) {
  if constexpr (!kPairs) return greater_of_each(a, b);
  unsigned all;
  asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(all) : "r"(a), "r"(b));
  return all;
}
#endif
#endif
)cuda";

constexpr const char* kForward = R"cuda(
constexpr int kNowhere = 255;

extern "C" __global__ void __launch_bounds__(kThreads, 1)
batch_norm_pool(const T* __restrict__ x, T* __restrict__ y, T* __restrict__ taken,
                unsigned char* __restrict__ places, long long R, const float* mean,
                const float* invstd, const float* weight, const float* bias) {
  const int c = first_column();
  if (c >= C) return;
  const Normal normal(c, mean, invstd, weight, bias);
  // Inputs become keys that grow as what is normalised does: with another sign where it falls, all
  // the same where it does neither.
  unsigned flip[kWords] = {}, keep[kWords] = {};
#pragma unroll
  for (int i = 0; i < W; ++i) {
    const float factor = normal.factor[i];
    if (factor < 0.f) flip[i / kNumbers] |= bits_of_number(kPairs ? 0x8000u : 0x80000000u, i);
    if (factor < 0.f || factor > 0.f) keep[i / kNumbers] |= bits_of_number(~0u, i);
  }
  T lowest;
  from_float(-infinity(), lowest);
  Vector<T, W> all_lowest;
#pragma unroll
  for (int i = 0; i < W; ++i) all_lowest.item[i] = lowest;
  const auto nothing = [](long long) { return 0; };
  for_rows<kFromTheEnd>(R, nothing, [&](long long r, int) {
    const Index line = (Index)r / OW;
    const int top = (int)(line % OH) * SH - PH, left = (int)((Index)r % OW) * SW - PW;
    const T* image = x + line / OH * ((Index)H * WIDTH * C) + c;
    unsigned best[kWords], input[kWords], place[kWords];
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      best[w] = word_of(all_lowest, w);
      input[w] = place[w] = 0;
    }
#pragma unroll
    for (int a = 0; a < KH * KW; ++a) {
      const int h = top + a / KW, w = left + a % KW;
      const bool is_inside = h >= 0 && h < H && w >= 0 && w < WIDTH;
      const Index at = (Index)min(max(h, 0), H - 1) * WIDTH + min(max(w, 0), WIDTH - 1);
      const Vector<T, W> v = load<W>(image + at * C);
#pragma unroll
      for (int k = 0; k < kWords; ++k) {
        const unsigned word = word_of(v, k), key = (word ^ flip[k]) & keep[k];
        const unsigned better = is_inside ? greater(key, best[k], x) : 0u;
        best[k] = (key & better) | (best[k] & ~better);
        input[k] = (word & better) | (input[k] & ~better);
        place[k] = (in_all(a) & better) | (place[k] & ~better);
      }
    }
    Vector<unsigned char, W> where;
    Vector<T, W> largest;
    float result[W];
#pragma unroll
    for (int i = 0; i < W; ++i) {
      largest.item[i] = number(input[i / kNumbers], i);
      result[i] = relu(normal(i, to_float(largest.item[i])));
      T rounded;  // as the next layer sees it
      from_float(result[i], rounded);
      where.item[i] = to_float(rounded) <= 0.f
                          ? kNowhere
                          : (unsigned char)(place[i / kNumbers] >> (kPairs ? 16 * (i % 2) : 0));
    }
    const Index to = (Index)r * C + c;
    store<W>(y + to, result);
    *reinterpret_cast<Vector<T, W>*>(taken + to) = largest;
    *reinterpret_cast<Vector<unsigned char, W>*>(places + to) = where;
  });
}
)cuda";

constexpr const char* kBackward = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads, 1)
batch_norm_pool_backward(const T* __restrict__ x, const T* __restrict__ grad,
                         const unsigned char* __restrict__ places, T* __restrict__ result,
                         long long tiles, long long R, const float* mean, const float* invstd,
                         const float* weight, const float* weight_grad, const float* bias_grad) {
  const int c = first_column();
  if (c >= C) return;
  // factor * (gradient - level - (x - mean) * slope), in fewer registers. The product x * slope is
  // rounded no more than x and the mean are.
  float factor[W], slope[W], offset[W];
#pragma unroll
  for (int i = 0; i < W; ++i) {
    factor[i] = weight ? weight[c + i] * invstd[c + i] : invstd[c + i];
    slope[i] = -factor[i] * (weight_grad[c + i] * invstd[c + i] / (float)R);
    offset[i] = -factor[i] * (bias_grad[c + i] / (float)R) - mean[c + i] * slope[i];
  }
  const auto nothing = [](long long) { return 0; };
  for_rows(tiles, nothing, [&](long long t, int) {
    const Tile tile((Index)t);
    Vector<T, W> inputs[TH * TW];
#pragma unroll
    for (int a = 0; a < TH * TW; ++a) inputs[a] = load<W>(x + tile.offset(a) + c);
    float g[TH * TW][W] = {};
    tile.add_windows(grad, places, c, g);
#pragma unroll
    for (int a = 0; a < TH * TW; ++a) {
      float f[W];
      unpack<W>(inputs[a], f);
#pragma unroll
      for (int i = 0; i < W; ++i) {
        g[a][i] = fmaf(g[a][i], factor[i], fmaf(f[i], slope[i], offset[i]));
      }
      if (tile.has_place(a)) store<W>(result + tile.offset(a) + c, g[a]);
    }
  });
}
)cuda";

// As the pass over the windows and that over the inputs take them.
ColumnPlan with_rows(ColumnPlan plan, int64_t rows) {
  plan.rows = rows;
  return plan;
}

}  // namespace

BatchNormPoolResults batch_norm_pool(const BatchNormArguments& a, const PoolWindow& window,
                                     const at::Tensor& counters, const Launcher& launcher) {
  const std::vector<int64_t> size = window.output_size(a.input.sizes());
  const auto empty = [&](c10::ScalarType type) {
    return at::empty(size, a.input.options().dtype(type), at::MemoryFormat::ChannelsLast);
  };
  BatchNormPoolResults results{.y = empty(a.input.scalar_type()),
                               .taken = empty(a.input.scalar_type()),
                               .places = empty(at::kByte)};
  const ColumnPlan plan = plan_columns({a.input, results.y});
  const KernelSource kernel{"batch_norm_pool", column_head(plan, kUnroll) +
                                                   pool_constants(window, a.input.sizes(), size) +
                                                   column_rows() + normal_columns() + kWords +
                                                   kForward};
  launcher.prepare(kernel);  // before anything is changed
  results.statistics = batch_norm_statistics(a, counters, launcher);
  const ColumnPlan windows = with_rows(plan, size[0] * size[2] * size[3]);
  launcher(kernel, windows.shape(launcher.multiprocessors(), kBlocks), a.input.data_ptr(),
           results.y.data_ptr(), results.taken.data_ptr(), results.places.data_ptr(),
           static_cast<long long>(windows.rows), data_of<float>(results.statistics.mean),
           data_of<float>(results.statistics.invstd), data_of<float>(a.weight),
           data_of<float>(a.bias));
  return results;
}

BatchNormPoolGradients batch_norm_pool_backward(const BatchNormPoolBackwardArguments& a,
                                                const PoolWindow& window,
                                                const at::Tensor& counters,
                                                const Launcher& launcher) {
  const at::Tensor result =
      at::empty_strided(a.input.sizes(), a.input.strides(), a.input.options());
  const BatchNormBackwardArguments of_windows{
      .grad = laid_out_like(a.taken, a.grad),
      .other = a.other,
      .input = a.taken,
      .weight = a.weight,
      .bias = a.bias,
      .mean = a.statistics.mean,
      .invstd = a.statistics.invstd,
      .mask = ReluMask::kOfInput,
  };
  const ColumnPlan plan = plan_columns({a.input, result, of_windows.grad});
  const KernelSource kernel{"batch_norm_pool_backward",
                            column_head(plan, kUnroll) +
                                pool_constants(window, a.input.sizes(), a.taken.sizes()) +
                                column_rows() + pool_tiles() + kBackward};
  launcher.prepare(kernel);
  const BatchNormSums sums = batch_norm_backward_sums(of_windows, counters, launcher);
  // What relu masks went nowhere.
  const at::Tensor& grad = sums.masked.defined() ? sums.masked : of_windows.grad;
  const ColumnPlan tiles = with_rows(plan, window.tiles(a.input.sizes()));
  launcher(kernel, tiles.shape(launcher.multiprocessors(), kBlocks), a.input.data_ptr(),
           grad.data_ptr(), a.places.data_ptr(), result.data_ptr(),
           static_cast<long long>(tiles.rows), static_cast<long long>(plan.rows),
           data_of<float>(a.statistics.mean), data_of<float>(a.statistics.invstd),
           data_of<float>(a.weight), data_of<float>(sums.weight_grad),
           data_of<float>(sums.bias_grad));
  return {result, sums.weight_grad, sums.bias_grad};
}

BatchNormPoolResults batch_norm_pool_unfused(const BatchNormArguments& arguments,
                                             const PoolWindow& window) {
  BatchNormArguments a = arguments;
  a.relu = true;
  const auto [normalized, mean, invstd, bits] = batch_norm_act_unfused(a);
  const auto [y, indices] =
      at::max_pool2d_with_indices(normalized, window.kernel, window.stride, window.padding);
  const at::Tensor taken =
      a.input.reshape({a.input.size(0), a.input.size(1), -1}).gather(2, indices.flatten(2));
  const at::Tensor places = places_of(indices, a.input.size(3), window);
  return {.y = in_channels_last(y),
          .statistics = {mean, invstd},
          .taken = in_channels_last(taken.view(y.sizes())),
          .places = in_channels_last(places.masked_fill(y.le(0), kNowhere))};
}

BatchNormPoolGradients batch_norm_pool_backward_unfused(const BatchNormPoolBackwardArguments& a,
                                                        const PoolWindow& window) {
  const at::Tensor nowhere = a.places.eq(kNowhere);
  const bool adds = a.other && a.other->defined();
  const at::Tensor grad = (adds ? a.grad + *a.other : a.grad).masked_fill(nowhere, 0);
  const at::Tensor indices = indices_of(a.places, a.input.size(3), window).masked_fill(nowhere, 0);
  const int64_t images = a.input.size(0), channels = a.input.size(1);
  const at::Tensor of_input =
      at::zeros({images, channels, a.input.size(2) * a.input.size(3)}, grad.options())
          .scatter_add_(2, indices.reshape({images, channels, -1}),
                        grad.reshape({images, channels, -1}))
          .view(a.input.sizes());
  const auto [result, weight_grad, bias_grad, masked] =
      batch_norm_act_backward_unfused({.grad = laid_out_like(a.input, of_input),
                                       .input = a.input,
                                       .weight = a.weight,
                                       .mean = a.statistics.mean,
                                       .invstd = a.statistics.invstd});
  return {result, weight_grad, bias_grad};
}

}  // namespace tensorpack::cuda
