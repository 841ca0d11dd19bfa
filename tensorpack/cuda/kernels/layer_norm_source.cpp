// SPDX-License-Identifier: Apache-2.0
// Note [Rows in registers]
// A warp keeps a row in its registers, so that mean, variance and result take one read, without
// barriers. Backward, it adds up its rows' share of the gradients of weight and bias on the way; a
// small kernel sums what the blocks found. For the sums of its results, too, it has no registers
// left: it keeps them in shared memory, each lane those of its own columns. Whether there is a
// weight is known to the compiler, for the same reason: branches kept some more alive.
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/layer_norm.h"
#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

constexpr const char* kRow = R"cuda(
constexpr int K = (D + 32 * W - 1) / (32 * W);  // vectors of a lane

__device__ __forceinline__ float sum_of_warp(float v) {
  for (int o = 16; o > 0; o /= 2) v += __shfl_xor_sync(~0u, v, o);
  return v;
}
// What lane `lane` keeps of a row, zeros beyond its end.
template <class T>
__device__ __forceinline__ void load_row(const T* row, int lane, float (&f)[K * W]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int c = (k * 32 + lane) * W;
    float v[W] = {};
    if (c < D) unpack<W>(load<W>(row + c), v);
#pragma unroll
    for (int i = 0; i < W; ++i) f[k * W + i] = v[i];
  }
}
template <class T>
__device__ __forceinline__ void store_row(T* row, int lane, const float (&f)[K * W]) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int c = (k * 32 + lane) * W;
    float v[W];
#pragma unroll
    for (int i = 0; i < W; ++i) v[i] = f[k * W + i];
    if (c < D) store<W>(row + c, v);
  }
}
// True for the elements of a lane that are part of the row.
__device__ __forceinline__ bool is_inside(int lane, int k) { return (k * 32 + lane) * W < D; }
)cuda";

constexpr const char* kForward = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
layer_norm(const X* __restrict__ x, const R* __restrict__ residual, X* __restrict__ sum,
           Y* __restrict__ y, float* mean, float* rstd, const float* weight, const float* bias,
           float epsilon, long long rows) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (long long first = (long long)blockIdx.x * (kThreads / 32); first < rows;
       first += (long long)gridDim.x * (kThreads / 32)) {
    const long long r = first + warp;
    const bool is_row = r < rows;
    const long long at = (is_row ? r : 0) * D;
    float f[K * W];
    load_row(x + at, lane, f);
    if constexpr (kResidual) {
      float add[K * W];
      load_row(residual + at, lane, add);
#pragma unroll
      for (int i = 0; i < K * W; ++i) {
        X rounded;
        from_float(f[i] + add[i], rounded);
        f[i] = to_float(rounded);
      }
      if (is_row) store_row(sum + at, lane, f);
    }
    float s = 0.f;
#pragma unroll
    for (int i = 0; i < K * W; ++i) s += f[i];
    const float m = sum_of_warp(s) / D;
    float q = 0.f;
#pragma unroll
    for (int i = 0; i < K * W; ++i) {
      const float d = is_inside(lane, i / W) ? f[i] - m : 0.f;
      q = fmaf(d, d, q);
    }
    const float inverse = 1.f / sqrtf(sum_of_warp(q) / D + epsilon);
    if (!is_row) continue;
    if (lane == 0) {
      mean[r] = m;
      rstd[r] = inverse;
    }
    float w[K * W], b[K * W];
    if (weight) load_row(weight, lane, w);
    if (bias) load_row(bias, lane, b);
#pragma unroll
    for (int i = 0; i < K * W; ++i) {
      f[i] = (f[i] - m) * inverse;
      if (weight) f[i] *= w[i];
      if (bias) f[i] += b[i];
    }
    store_row(y + at, lane, f);
  }
}
)cuda";

constexpr const char* kBackward = R"cuda(
// One vector of a row, zeros beyond its end.
template <class T>
__device__ __forceinline__ void load_part(const T* row, int c, float (&f)[W]) {
#pragma unroll
  for (int i = 0; i < W; ++i) f[i] = 0.f;
  if (c < D) unpack<W>(load<W>(row + c), f);
}

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks)
layer_norm_backward(const G* __restrict__ grad, const X* __restrict__ x, const X* __restrict__ other,
                    X* __restrict__ result, Y* __restrict__ copy, const float* mean,
                    const float* rstd, const float* weight, float2* partial, float* partial_sums,
                    long long rows) {
  __shared__ Vector<float, W> sums[kThreads / 32][kSum ? D / W : 1];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float weight_grad[K * W] = {}, bias_grad[K * W] = {};
  if constexpr (kSum) {
    for (int v = lane; v < D / W; v += 32) sums[warp][v] = {};
  }
  for (long long first = (long long)blockIdx.x * (kThreads / 32); first < rows;
       first += (long long)gridDim.x * (kThreads / 32)) {
    const long long r = first + warp;
    const bool is_row = r < rows;
    const long long at = (is_row ? r : 0) * D;
    const float m = mean[is_row ? r : 0], inverse = is_row ? rstd[r] : 0.f;
    float f[K * W], g[K * W];
    load_row(x + at, lane, f);
    load_row(grad + at, lane, g);
    float product = 0.f, sum = 0.f;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      float w[W];
      if constexpr (kWeight) load_part(weight, (k * 32 + lane) * W, w);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const int i = k * W + j;
        if (!is_row) g[i] = 0.f;
        f[i] = is_inside(lane, k) ? (f[i] - m) * inverse : 0.f;
        weight_grad[i] = fmaf(g[i], f[i], weight_grad[i]);
        bias_grad[i] += g[i];
        if constexpr (kWeight) g[i] *= w[j];
        product = fmaf(g[i], f[i], product);
        sum += g[i];
      }
    }
    product = sum_of_warp(product) / D;
    sum = sum_of_warp(sum) / D;
    if (!is_row) continue;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      const int c = (k * 32 + lane) * W;
      float add[W], out[W];
      if constexpr (kOther) load_part(other + at, c, add);
#pragma unroll
      for (int j = 0; j < W; ++j) {
        const int i = k * W + j;
        out[j] = inverse * (g[i] - sum - f[i] * product);
        if constexpr (kOther) out[j] += add[j];
      }
      if (c >= D) continue;
      store<W>(result + at + c, out);
      if constexpr (kCopy) store<W>(copy + at + c, out);
      if constexpr (kSum) {
        Vector<float, W> s = sums[warp][c / W];
#pragma unroll
        for (int j = 0; j < W; ++j) {
          Y stored;
          from_float(out[j], stored);
          s.item[j] += to_float(stored);
        }
        sums[warp][c / W] = s;
      }
    }
  }
  // The sums of the block's warps, in their order.
  __shared__ float2 shared[D];
  for (int turn = 0; turn < kThreads / 32; ++turn) {
    if (warp == turn) {
#pragma unroll
      for (int i = 0; i < K * W; ++i) {
        const int c = (i / W * 32 + lane) * W + i % W;
        if (c >= D) continue;
        float2 v = {weight_grad[i], bias_grad[i]};
        if (turn > 0) v = {shared[c].x + v.x, shared[c].y + v.y};
        shared[c] = v;
      }
    }
    __syncthreads();
  }
  for (int c = threadIdx.x; c < D; c += kThreads) {
    partial[(size_t)blockIdx.x * D + c] = shared[c];
    if constexpr (kSum) {
      float s = 0.f;
      for (int w = 0; w < kThreads / 32; ++w) s += sums[w][c / W].item[c % W];
      partial_sums[(size_t)blockIdx.x * D + c] = s;
    }
  }
}
)cuda";

// A block for 32 columns, a warp for every 8th part.
constexpr const char* kFinish = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
layer_norm_finish(const float2* __restrict__ partial, const float* __restrict__ partial_sums,
                  int parts, float* weight_grad, float* bias_grad, S* sums) {
  __shared__ float2 shared[kThreads];
  __shared__ float shared_sums[kThreads];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, c = blockIdx.x * 32 + lane;
  float2 sum = {0.f, 0.f};
  float s = 0.f;
  for (int p = warp; c < D && p < parts; p += kThreads / 32) {
    const float2 v = partial[(size_t)p * D + c];
    sum.x += v.x;
    sum.y += v.y;
    if constexpr (kSum) s += partial_sums[(size_t)p * D + c];
  }
  shared[threadIdx.x] = sum;
  if constexpr (kSum) shared_sums[threadIdx.x] = s;
  __syncthreads();
  if (warp > 0 || c >= D) return;
  for (int i = 1; i < kThreads / 32; ++i) {
    sum.x += shared[i * 32 + lane].x;
    sum.y += shared[i * 32 + lane].y;
    if constexpr (kSum) s += shared_sums[i * 32 + lane];
  }
  weight_grad[c] = sum.x;
  bias_grad[c] = sum.y;
  if constexpr (kSum) from_float(s, sums[c]);
}
)cuda";

std::string head(const LayerNormPlan& plan) {
  return prelude() + fmt::format("constexpr int D = {}, W = {}, kThreads = {};\n", plan.columns,
                                 plan.width, LayerNormPlan::kThreads);
}

}  // namespace

KernelSource layer_norm_kernel(const LayerNormPlan& plan) {
  const std::string constants =
      fmt::format("using X = {};\nusing R = {};\nusing Y = {};\nconstexpr bool kResidual = {};\n",
                  kernel_type(plan.stream), kernel_type(plan.residual.value_or(plan.result)),
                  kernel_type(plan.result), plan.residual.has_value());
  return {"layer_norm", head(plan) + constants + kRow + kForward};
}

KernelSource layer_norm_backward_kernel(const LayerNormPlan& plan, int blocks) {
  const std::string constants = fmt::format(
      "using X = {};\nusing G = {};\nusing Y = {};\n"
      "constexpr bool kOther = {}, kWeight = {}, kCopy = {}, kSum = {};\n"
      "constexpr int kBlocks = {};\n",
      kernel_type(plan.stream), kernel_type(plan.result),
      kernel_type(plan.copy.value_or(plan.stream)), plan.residual.has_value(), plan.weight,
      plan.copy.has_value(), plan.sum.has_value(), blocks);
  return {"layer_norm_backward", head(plan) + constants + kRow + kBackward};
}

KernelSource layer_norm_finish_kernel(const LayerNormPlan& plan) {
  const std::string constants =
      fmt::format("using S = {};\nconstexpr bool kSum = {};\n",
                  kernel_type(plan.sum.value_or(c10::kFloat)), plan.sum.has_value());
  return {"layer_norm_finish", head(plan) + constants + kFinish};
}

}  // namespace tensorpack::cuda
