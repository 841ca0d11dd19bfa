// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/filter_gradient.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

constexpr int64_t kThreads = 256;
constexpr int64_t kSide = 8;          // filters, and taps, of a thread
constexpr int64_t kMostFilters = 64;  // of a block
constexpr int64_t kMostTaps = 128;    // with that of the bias
constexpr int64_t kManyTaps = 64;
constexpr int64_t kMostTeams = 32;  // of threads that share the places of a tile
constexpr int64_t kVector = 4;
// Of the kernel that adds up.
constexpr int64_t kAcross = 32;
constexpr int64_t kParts = 16;

constexpr const char* kGradient = R"cuda(
constexpr int kTeam = KG * TG, kOwned = kSide * kSide;
constexpr int kFilters = KG * kSide, kTaps = TG * kSide;  // of a block
// A few floats more than needed, so that banks differ.
constexpr int kGradPitch = kFilters + 4, kPatchPitch = ROWS + 4;
constexpr int kTileFloats = ROWS * kGradPitch + kTaps * kPatchPitch;
constexpr int kSumFloats = kOwned / 2 * TEAMS * kTeam;
constexpr int kFloats = kTileFloats > kSumFloats ? kTileFloats : kSumFloats;
constexpr int kAside = kThreads / ROWS;  // taps, or filters, that are gathered at a time
constexpr int kVectorsOfRow = kFilters / 4;
constexpr int kVectors = kColumns ? (ROWS * kVectorsOfRow + kThreads - 1) / kThreads : 1;
constexpr int kValues = kColumns ? 1 : kFilters / kAside;
constexpr int kPatches = kTaps / kAside;

// What a thread brings from memory for one tile.
struct Tile {
  Vector<T, 4> vectors[kVectors];
  T values[kValues];
  T patches[kPatches];

  __device__ __forceinline__ void load(const T* __restrict__ grad, const T* __restrict__ image,
                                       unsigned rows, unsigned first_row, int first_filter) {
    const unsigned t = threadIdx.x, row = first_row + t % ROWS, aside = t / ROWS;
    const int n = row / (HO * WO), y = row / WO % HO, x = row % WO;
    const int top = y * SY - PY, left = x * SX - PX;
    if (kColumns) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const unsigned e = t + i * kThreads, r = first_row + e / kVectorsOfRow;
        const unsigned k = first_filter + e % kVectorsOfRow * 4;
        vectors[i] = {};
        if (e < ROWS * kVectorsOfRow && r < rows && k < K) {
          vectors[i] = ::load<4>(grad + ((Index)r * K + k));
        }
      }
    } else {
      const int first = first_filter + aside;
      const T* const place = grad + (n * GN + first * GK + y * GY + x * GX);
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        values[i] = {};
        if (row < rows && first + i * kAside < K) values[i] = place[i * kAside * GK];
      }
    }
    const T* const corner = image + (n * IN + top * IH + left * IW);
#pragma unroll
    for (int a = 0; a < kAside; ++a) {
      if (a != aside) continue;  // so that all about a tap is constant
#pragma unroll
      for (int i = 0; i < kPatches; ++i) {
        const int tap = a + i * kAside, c = tap / (R * S), r = tap / S % R, s = tap % S;
        const unsigned h = top + r * DY, w = left + s * DX;  // large, if they are below zero
        patches[i] = {};
        if (row < rows && c < C && h < H && w < WIDTH) {
          patches[i] = corner[c * IC + r * DY * IH + s * DX * IW];
        }
      }
    }
  }

  __device__ __forceinline__ void store(float* grads, float* taps) const {
    const int t = threadIdx.x, row = t % ROWS, aside = t / ROWS;
    if (kColumns) {
#pragma unroll
      for (int i = 0; i < kVectors; ++i) {
        const int e = t + i * kThreads;
        float f[4];
        unpack<4>(vectors[i], f);
        if (e < ROWS * kVectorsOfRow) {
          ::store<4>(grads + e / kVectorsOfRow * kGradPitch + e % kVectorsOfRow * 4, f);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < kValues; ++i) {
        grads[row * kGradPitch + aside + i * kAside] = to_float(values[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < kPatches; ++i) {
      const int tap = aside + i * kAside;
      taps[tap * kPatchPitch + row] = kBias && tap == C * R * S ? 1.f : to_float(patches[i]);
    }
  }
};

extern "C" __global__ void __launch_bounds__(kThreads, 1)
filter_gradient(const T* __restrict__ grad, const T* __restrict__ image, int rows, float* partial) {
  __shared__ Vector<float, 4> memory[kFloats / 4];
  float* const grads = memory[0].item;             // [row][filter]
  float* const taps = grads + ROWS * kGradPitch;   // [tap][row]
  const int t = threadIdx.x, team = t / kTeam, member = t % kTeam;
  const int kg = member % KG, tg = member / KG;
  const int first_filter = blockIdx.x * kFilters, tiles = (rows + ROWS - 1) / ROWS;
  float sum[kSide][kSide] = {};
  Tile tile;
  tile.load(grad, image, rows, blockIdx.y * ROWS, first_filter);
  for (int i = blockIdx.y; i < tiles; i += gridDim.y) {
    tile.store(grads, taps);
    __syncthreads();
    if (i + gridDim.y < tiles) {
      tile.load(grad, image, rows, (i + gridDim.y) * ROWS, first_filter);
    }
    if (team < TEAMS) {
      for (int quad = team; quad < ROWS / 4; quad += TEAMS) {
        float p[kSide][4];
#pragma unroll
        for (int b = 0; b < kSide; ++b) {
          unpack<4>(load<4>(taps + (b * TG + tg) * kPatchPitch + quad * 4), p[b]);
        }
#pragma unroll
        for (int u = 0; u < 4; ++u) {
          float g[2][4];
          const float* const row = grads + (quad * 4 + u) * kGradPitch + kg * 4;
          unpack<4>(load<4>(row), g[0]);
          unpack<4>(load<4>(row + KG * 4), g[1]);
#pragma unroll
          for (int a = 0; a < kSide; ++a) {
#pragma unroll
            for (int b = 0; b < kSide; ++b) sum[a][b] = fmaf(g[a / 4][a % 4], p[b][u], sum[a][b]);
          }
        }
      }
    }
    __syncthreads();
  }
  // Over the teams, half of what a thread owns at a time.
  float* const sums = memory[0].item;
  float* const to = partial + ((long long)blockIdx.y * gridDim.x + blockIdx.x) * kOwned * kTeam;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (team < TEAMS) {
#pragma unroll
      for (int v = 0; v < kOwned / 2; ++v) {
        sums[v * TEAMS * kTeam + t] = sum[half * kSide / 2 + v / kSide][v % kSide];
      }
    }
    __syncthreads();
    for (int e = t; e < kOwned / 2 * kTeam; e += kThreads) {
      const float* const of = sums + e / kTeam * TEAMS * kTeam + e % kTeam;
      float s = of[0];
#pragma unroll
      for (int m = 1; m < TEAMS; ++m) s += of[m * kTeam];
      to[half * kOwned / 2 * kTeam + e] = s;
    }
    __syncthreads();
  }
}
)cuda";

// A thread adds up some blocks' partial results of one weight; neighbours have neighbouring ones.
constexpr const char* kSum = R"cuda(
constexpr int kTeam = KG * TG, kOwned = kSide * kSide;
constexpr int kUnroll = 10;

extern "C" __global__ void __launch_bounds__(kAcross * kParts)
filter_gradient_sum(float* partial, int blocks, T* weight, T* bias) {
  __shared__ float shared[kParts][kAcross];
  const int e = blockIdx.x * kAcross + threadIdx.x;
  const int v = e / kTeam, kg = e % kTeam % KG, tg = e % kTeam / KG;
  const int a = v / kSide, tap = v % kSide * TG + tg;
  const int k = blockIdx.y * KG * kSide + a / 4 * KG * 4 + kg * 4 + a % 4;
  const bool is_weight = k < K && tap < C * R * S, is_bias = kBias && k < K && tap == C * R * S;
  const float* const from = partial + (long long)blockIdx.y * kOwned * kTeam + e;
  const long long pitch = (long long)gridDim.y * kOwned * kTeam;
  float s = 0.f;
  if (is_weight || is_bias) {
    for (int b = threadIdx.y; b < blocks; b += kUnroll * kParts) {
      float of[kUnroll];
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) {
        const int block = b + u * kParts;
        of[u] = block < blocks ? __ldcg(from + block * pitch) : 0.f;
      }
#pragma unroll
      for (int u = 0; u < kUnroll; ++u) s += of[u];
    }
  }
  shared[threadIdx.y][threadIdx.x] = s;
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int p = 1; p < kParts; ++p) s += shared[p][threadIdx.x];
  if (is_weight) {
    const int c = tap / (R * S), r = tap / S % R, x = tap % S;
    from_float(s, weight[k * WK + c * WC + r * WR + x * WS]);
  }
  if (is_bias) from_float(s, bias[k]);
}
)cuda";

// How a block's threads share the work.
struct FilterPlan {
  int64_t filter_groups = 1;  // of kSide filters
  int64_t tap_groups = 1;     // of kSide taps
  int64_t teams = 1;          // of threads, each with all weights
  int64_t rows = 32;          // places of a tile
  int64_t filter_tiles = 1;   // blocks side by side

  int64_t weights() const { return kSide * kSide * filter_groups * tap_groups; }
};

FilterPlan plan_for(const FilterGradient& of) {
  const int64_t filters = of.size[0], taps = of.size[1] * of.size[2] * of.size[3] + of.bias;
  FilterPlan plan{.filter_groups = divide_up(std::min(filters, kMostFilters), kSide),
                  .tap_groups = divide_up(taps, kSide),
                  .filter_tiles = divide_up(filters, kMostFilters)};
  const int64_t team = plan.filter_groups * plan.tap_groups;
  while (plan.teams < kMostTeams && 2 * plan.teams * team <= kThreads) plan.teams *= 2;
  // At least four for each team. The next tile waits in registers, where many taps take many; with
  // few of them, there should be enough to do until it has come.
  plan.rows = taps > kManyTaps ? std::max<int64_t>(4 * plan.teams, 32)
                               : std::clamp<int64_t>(8 * plan.teams, 64, 128);
  return plan;
}

// Whether the rows of the matrix [places, filters] can be read as vectors.
bool has_columns(const at::Tensor& grad) {
  const auto bytes = static_cast<uintptr_t>(kVector * grad.element_size());
  return is_column_matrix(grad.sizes(), grad.strides()) && grad.size(1) % kVector == 0 &&
         reinterpret_cast<uintptr_t>(grad.data_ptr()) % bytes == 0;
}

// The one that reaches all elements.
const char* index_type(const std::vector<at::Tensor>& tensors) {
  const bool is_short = std::all_of(tensors.begin(), tensors.end(), [](const at::Tensor& tensor) {
    int64_t last = 0;
    for (int64_t i = 0; i < tensor.dim(); ++i) last += (tensor.size(i) - 1) * tensor.stride(i);
    return last <= std::numeric_limits<int>::max();
  });
  return is_short ? "int" : "long long";
}

std::string constants_of(const FilterGradient& of, const FilterPlan& plan, c10::ScalarType type) {
  return prelude() +
         fmt::format(
             "using T = {};\nconstexpr int kSide = {}, KG = {}, TG = {};\n"
             "constexpr int K = {}, C = {}, R = {}, S = {};\nconstexpr bool kBias = {};\n",
             kernel_type(type), kSide, plan.filter_groups, plan.tap_groups, of.size[0], of.size[1],
             of.size[2], of.size[3], of.bias);
}

KernelSource gradient_kernel(const at::Tensor& grad, const at::Tensor& image,
                             const FilterGradient& of, const FilterPlan& plan) {
  return {
      "filter_gradient",
      constants_of(of, plan, grad.scalar_type()) +
          fmt::format("constexpr int kThreads = {}, TEAMS = {}, ROWS = {};\n"
                      "constexpr int HO = {}, WO = {}, H = {}, WIDTH = {};\n"
                      "constexpr int SY = {}, SX = {}, PY = {}, PX = {}, DY = {}, DX = {};\n"
                      "using Index = {};\n"
                      "constexpr Index IN = {}, IC = {}, IH = {}, IW = {};\n"
                      "constexpr Index GN = {}, GK = {}, GY = {}, GX = {};\n"
                      "constexpr bool kColumns = {};\n",
                      kThreads, plan.teams, plan.rows, grad.size(2), grad.size(3), image.size(2),
                      image.size(3), of.stride[0], of.stride[1], of.padding[0], of.padding[1],
                      of.dilation[0], of.dilation[1], index_type({grad, image}), image.stride(0),
                      image.stride(1), image.stride(2), image.stride(3), grad.stride(0),
                      grad.stride(1), grad.stride(2), grad.stride(3), has_columns(grad)) +
          kGradient};
}

KernelSource sum_kernel(const FilterGradient& of, const FilterPlan& plan, c10::ScalarType type) {
  return {
      "filter_gradient_sum",
      constants_of(of, plan, type) +
          fmt::format("constexpr int kAcross = {}, kParts = {};\n"
                      "constexpr long long WK = {}, WC = {}, WR = {}, WS = {};\n",
                      kAcross, kParts, of.strides[0], of.strides[1], of.strides[2], of.strides[3]) +
          kSum};
}

// Blocks that each have as many tiles: one for a multiprocessor, since each leaves a result.
int64_t blocks_for(int64_t tiles, const FilterPlan& plan, int multiprocessors) {
  const int64_t most = std::max<int64_t>(1, multiprocessors / plan.filter_tiles);
  return divide_up(tiles, divide_up(tiles, most));
}

}  // namespace

bool fits_filter_gradient(at::IntArrayRef size) {
  return size.size() == 4 && size[1] * size[2] * size[3] < kMostTaps;
}

std::tuple<at::Tensor, at::Tensor> filter_gradient(const at::Tensor& grad, const at::Tensor& image,
                                                   const FilterGradient& of,
                                                   const Launcher& launcher) {
  const FilterPlan plan = plan_for(of);
  const int64_t rows = grad.numel() / grad.size(1);
  const int64_t blocks = blocks_for(divide_up(rows, plan.rows), plan, launcher.multiprocessors());
  const at::Tensor weight = at::empty_strided(of.size, of.strides, grad.options());
  const at::Tensor bias = of.bias ? at::empty({of.size[0]}, grad.options()) : at::Tensor();
  const at::Tensor partial =
      at::empty({blocks, plan.filter_tiles, plan.weights()}, grad.options().dtype(at::kFloat));
  const KernelSource gradient = gradient_kernel(grad, image, of, plan);
  const KernelSource sum = sum_kernel(of, plan, grad.scalar_type());
  launcher.prepare(gradient);
  launcher.prepare(sum);
  const auto tiles = static_cast<unsigned>(plan.filter_tiles);
  launcher(gradient,
           {.grid = {tiles, static_cast<unsigned>(blocks)}, .block = {unsigned{kThreads}, 1}},
           grad.data_ptr(), image.data_ptr(), static_cast<int>(rows), partial.data_ptr());
  launcher(sum,
           {.grid = {static_cast<unsigned>(plan.weights() / kAcross), tiles},
            .block = {unsigned{kAcross}, unsigned{kParts}}},
           partial.data_ptr(), static_cast<int>(blocks), weight.data_ptr(),
           of.bias ? bias.data_ptr() : nullptr);
  return {weight, bias};
}

std::tuple<at::Tensor, at::Tensor> filter_gradient_unfused(const at::Tensor& grad,
                                                           const at::Tensor& image,
                                                           const FilterGradient& of) {
  const at::Tensor weight = at::empty_strided(of.size, of.strides, grad.options());
  const at::Tensor gradient =
      std::get<1>(at::convolution_backward(grad, image, weight, c10::nullopt, of.stride, of.padding,
                                           of.dilation, false, {0, 0}, 1, {false, true, false}));
  return {laid_out_like(weight, gradient), of.bias ? grad.sum({0, 2, 3}) : at::Tensor()};
}

}  // namespace tensorpack::cuda
