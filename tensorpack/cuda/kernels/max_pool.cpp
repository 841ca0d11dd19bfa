// SPDX-License-Identifier: Apache-2.0
// Note [Pooling windows]
// libtorch keeps an index of eight bytes for every maximum: in bfloat16 that is twice what pooling
// itself reads and writes. A byte that tells the place in the window does as well. Backward, each
// input looks at the windows it is part of, so that nothing is written twice and sums repeat.
#include "tensorpack/cuda/kernels/max_pool.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"

namespace tensorpack::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 16;  // per multiprocessor

// A thread computes W channels of one place at a time.
constexpr const char* kForward = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
max_pool(const T* __restrict__ x, T* __restrict__ y, unsigned char* __restrict__ places, int N) {
  const Index count = (Index)N * OH * OW * (C / W);
  for (Index t = (Index)blockIdx.x * kThreads + threadIdx.x; t < count;
       t += (Index)gridDim.x * kThreads) {
    const int c = (int)(t % (C / W)) * W;
    const Index pixel = t / (C / W), line = pixel / OW;
    const int ow = (int)(pixel % OW), oh = (int)(line % OH);
    const Index n = line / OH;
    float best[W];
    unsigned char place[W];
#pragma unroll
    for (int i = 0; i < W; ++i) {
      best[i] = -infinity();
      place[i] = 0;
    }
    bool is_first = true;
#pragma unroll
    for (int kh = 0; kh < KH; ++kh) {
#pragma unroll
      for (int kw = 0; kw < KW; ++kw) {
        const int h = oh * SH - PH + kh, w = ow * SW - PW + kw;
        if (h < 0 || h >= H || w < 0 || w >= WIDTH) continue;
        float f[W];
        unpack<W>(load<W>(x + ((n * H + h) * WIDTH + w) * C + c), f);
#pragma unroll
        for (int i = 0; i < W; ++i) {
          if (is_first || f[i] > best[i] || f[i] != f[i]) {
            best[i] = f[i];
            place[i] = kh * KW + kw;
          }
        }
        is_first = false;
      }
    }
    store<W>(y + pixel * C + c, best);
    Vector<unsigned char, W> v;
#pragma unroll
    for (int i = 0; i < W; ++i) v.item[i] = place[i];
    *reinterpret_cast<Vector<unsigned char, W>*>(places + pixel * C + c) = v;
  }
}
)cuda";

// TH x TW places that are part of the same windows, counted from the beginning of the padding.
constexpr const char* kTiles = R"cuda(
constexpr int kTilesDown = (H + PH + TH - 1) / TH, kTilesAcross = (WIDTH + PW + TW - 1) / TW;

struct Tile {
  Index n;
  int top, left;
  __device__ __forceinline__ explicit Tile(Index tile)
      : n(tile / kTilesAcross / kTilesDown),
        top((int)(tile / kTilesAcross % kTilesDown) * TH),
        left((int)(tile % kTilesAcross) * TW) {}

  __device__ __forceinline__ bool has_place(int a) const {
    const int h = top + a / TW - PH, w = left + a % TW - PW;
    return h >= 0 && h < H && w >= 0 && w < WIDTH;
  }
  // Of the first channel; that of another place for one that is not there.
  __device__ __forceinline__ Index offset(int a) const {
    const int h = min(max(top + a / TW - PH, 0), H - 1);
    const int w = min(max(left + a % TW - PW, 0), WIDTH - 1);
    return ((n * H + h) * WIDTH + w) * C;
  }

  __device__ __forceinline__ void add_windows(const T* __restrict__ grad,
                                              const unsigned char* __restrict__ places, int c,
                                              float (&sum)[TH * TW][W]) const {
    // From the last window that may hold these places to the first.
#pragma unroll
    for (int i = 0; i < (KH + SH - 1) / SH; ++i) {
#pragma unroll
      for (int j = 0; j < (KW + SW - 1) / SW; ++j) {
        const int oh = top / SH - i, ow = left / SW - j;
        const bool is_window = oh >= 0 && oh < OH && ow >= 0 && ow < OW;
        const Index at = is_window ? ((n * OH + oh) * OW + ow) * C + c : c;
        const Vector<unsigned char, W> place = load<W>(places + at);
        float g[W];
        unpack<W>(load<W>(grad + at), g);
#pragma unroll
        for (int a = 0; a < TH * TW; ++a) {
          const int kh = top % SH + a / TW + i * SH, kw = left % SW + a % TW + j * SW;
          if (kh >= KH || kw >= KW) continue;
#pragma unroll
          for (int k = 0; k < W; ++k) {
            sum[a][k] += is_window && place.item[k] == kh * KW + kw ? g[k] : 0.f;
          }
        }
      }
    }
  }
};
)cuda";

// A thread computes W channels of a tile at a time.
constexpr const char* kBackward = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads)
max_pool_backward(const T* __restrict__ grad, const unsigned char* __restrict__ places,
                  T* __restrict__ result, int N) {
  const Index count = (Index)N * kTilesDown * kTilesAcross * (C / W);
  for (Index t = (Index)blockIdx.x * kThreads + threadIdx.x; t < count;
       t += (Index)gridDim.x * kThreads) {
    const int c = (int)(t % (C / W)) * W;
    const Tile tile(t / (C / W));
    float sum[TH * TW][W] = {};
    tile.add_windows(grad, places, c, sum);
#pragma unroll
    for (int a = 0; a < TH * TW; ++a) {
      if (tile.has_place(a)) store<W>(result + tile.offset(a) + c, sum[a]);
    }
  }
}
)cuda";

// Along one side of a tile. More would take too many registers.
int64_t places_across(int64_t stride) { return stride <= 2 ? stride : 1; }

std::string head(const ColumnPlan& plan, const PoolWindow& window, at::IntArrayRef input,
                 at::IntArrayRef output) {
  return prelude() +
         fmt::format("using T = {};\nconstexpr int W = {}, kThreads = {};\n",
                     kernel_type(plan.type), plan.width, kThreads) +
         pool_constants(window, input, output);
}

LaunchShape shape_for(int64_t elements, const ColumnPlan& plan, const Launcher& launcher) {
  const int64_t blocks = std::max<int64_t>(1, (elements / plan.width + kThreads - 1) / kThreads);
  return {.grid = {static_cast<unsigned>(
                       std::min<int64_t>(blocks, int64_t{launcher.multiprocessors()} * kBlocks)),
                   1},
          .block = {kThreads, 1}};
}

at::Tensor empty_image(at::IntArrayRef size, const at::TensorOptions& options) {
  return at::empty(size, options, at::MemoryFormat::ChannelsLast);
}

}  // namespace

std::vector<int64_t> PoolWindow::output_size(at::IntArrayRef input) const {
  const auto along = [&](size_t i) {
    return (input[i + 2] + 2 * padding[i] - kernel[i]) / stride[i] + 1;
  };
  return {input[0], input[1], along(0), along(1)};
}

int64_t PoolWindow::tiles(at::IntArrayRef input) const {
  const auto along = [&](size_t i) {
    return divide_up(input[i + 2] + padding[i], places_across(stride[i]));
  };
  return input[0] * along(0) * along(1);
}

std::string pool_constants(const PoolWindow& window, at::IntArrayRef input,
                           at::IntArrayRef output) {
  // Divisions of 64 bits take longer than the memory.
  const int64_t elements = std::max(c10::multiply_integers(input), c10::multiply_integers(output));
  const bool is_small = elements < std::numeric_limits<int>::max() / 2;
  return fmt::format(
      "using Index = {};\nconstexpr int C = {}, H = {}, WIDTH = {}, OH = {}, OW = {};\n"
      "constexpr int KH = {}, KW = {}, SH = {}, SW = {}, PH = {}, PW = {}, TH = {}, TW = {};\n",
      is_small ? "int" : "long long", input[1], input[2], input[3], output[2], output[3],
      window.kernel[0], window.kernel[1], window.stride[0], window.stride[1], window.padding[0],
      window.padding[1], places_across(window.stride[0]), places_across(window.stride[1]));
}

std::string pool_tiles() { return kTiles; }

std::tuple<at::Tensor, at::Tensor> max_pool(const at::Tensor& input, const PoolWindow& window,
                                            const Launcher& launcher) {
  const std::vector<int64_t> size = window.output_size(input.sizes());
  const at::Tensor y = empty_image(size, input.options());
  const at::Tensor places = empty_image(size, input.options().dtype(at::kByte));
  const ColumnPlan plan = plan_columns({input, y});
  const KernelSource kernel{"max_pool", head(plan, window, input.sizes(), size) + kForward};
  launcher(kernel, shape_for(y.numel(), plan, launcher), input.data_ptr(), y.data_ptr(),
           places.data_ptr(), static_cast<int>(input.size(0)));
  return {y, places};
}

at::Tensor max_pool_backward(const at::Tensor& grad_, const at::Tensor& places,
                             at::IntArrayRef input_size, const PoolWindow& window,
                             const Launcher& launcher) {
  const at::Tensor grad = grad_.contiguous(at::MemoryFormat::ChannelsLast);
  const at::Tensor result = empty_image(input_size, grad.options());
  const ColumnPlan plan = plan_columns({result, grad});
  const KernelSource kernel{"max_pool_backward",
                            head(plan, window, input_size, grad.sizes()) + kTiles + kBackward};
  const int64_t elements = window.tiles(input_size) * plan.columns;
  launcher(kernel, shape_for(elements, plan, launcher), grad.data_ptr(), places.data_ptr(),
           result.data_ptr(), static_cast<int>(input_size[0]));
  return result;
}

namespace {

// Where the windows begin, as numbers of rows or columns.
at::Tensor beginnings(int64_t count, size_t side, const PoolWindow& window,
                      const at::TensorOptions& options) {
  return at::arange(count, options) * window.stride[side] - window.padding[side];
}

}  // namespace

at::Tensor indices_of(const at::Tensor& places, int64_t width, const PoolWindow& window) {
  const at::Tensor place = places.to(at::kLong);
  const at::Tensor top = beginnings(place.size(2), 0, window, place.options()).view({-1, 1});
  const at::Tensor left = beginnings(place.size(3), 1, window, place.options());
  return (at::floor_divide(place, window.kernel[1]) + top) * width +
         at::remainder(place, window.kernel[1]) + left;
}

at::Tensor places_of(const at::Tensor& indices, int64_t width, const PoolWindow& window) {
  const at::Tensor top = beginnings(indices.size(2), 0, window, indices.options()).view({-1, 1});
  const at::Tensor left = beginnings(indices.size(3), 1, window, indices.options());
  const at::Tensor row = at::floor_divide(indices, width) - top;
  const at::Tensor column = at::remainder(indices, width) - left;
  return (row * window.kernel[1] + column).to(at::kByte);
}

std::tuple<at::Tensor, at::Tensor> max_pool_unfused(const at::Tensor& input,
                                                    const PoolWindow& window) {
  const auto [y, indices] =
      at::max_pool2d_with_indices(input, window.kernel, window.stride, window.padding);
  return {y, places_of(indices, input.size(3), window)};
}

at::Tensor max_pool_backward_unfused(const at::Tensor& grad, const at::Tensor& places,
                                     at::IntArrayRef input_size, const PoolWindow& window) {
  const at::Tensor indices = indices_of(places, input_size[3], window);
  const at::Tensor input = empty_image(input_size, grad.options());
  return at::max_pool2d_with_indices_backward(grad, input, window.kernel, window.stride,
                                              window.padding, {1, 1}, false,
                                              indices.contiguous(at::MemoryFormat::ChannelsLast));
}

}  // namespace tensorpack::cuda
