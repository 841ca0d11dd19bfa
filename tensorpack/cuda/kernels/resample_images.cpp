// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/resample_images.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 16;  // per multiprocessor
constexpr int64_t kFields = sizeof(ImageToResample) / sizeof(int64_t);
static_assert(kFields == 7, "the kernel counts on it");

// A thread makes one pixel at a time. Neighbours count by their distance; those outside of the part
// do not.
constexpr const char* kKernel = R"cuda(
struct Axis {
  float center, reach;
  int first, count;
  __device__ __forceinline__ Axis(int place, int length, int results) {
    const float step = (float)length / results;
    reach = ANTIALIAS ? max(step, 1.f) : 1.f;
    center = (place + .5f) * step;
    count = min((int)ceilf(2 * reach), length);
    first = max(min((int)floorf(center - reach + .5f), length - count), 0);
  }
  __device__ __forceinline__ float weight(int i) const {
    return max(0.f, 1.f - fabsf(first + i + .5f - center) / reach);
  }
};

__device__ __forceinline__ void put(float v, float* to) { *to = v; }
__device__ __forceinline__ void put(float v, unsigned char* to) {
  *to = (unsigned char)min(max(v + .5f, 0.f), 255.f);
}

extern "C" __global__ void __launch_bounds__(kThreads)
resample_images(const unsigned char* __restrict__ pixels, const long long* __restrict__ images,
                T* __restrict__ batch, int N) {
  const long long count = (long long)N * H * W;
  for (long long t = (long long)blockIdx.x * kThreads + threadIdx.x; t < count;
       t += (long long)gridDim.x * kThreads) {
    const int n = (int)(t / (H * W)), place = (int)(t % (H * W)), y = place / W, x = place % W;
    const long long* image = images + n * 7;
    const long long stride = image[1] * 3;
    const Axis rows(y, (int)image[5], H), columns(image[6] ? W - 1 - x : x, (int)image[4], W);
    const unsigned char* from =
        pixels + image[0] + (image[3] + rows.first) * stride + (image[2] + columns.first) * 3;
    float sum[3] = {0.f, 0.f, 0.f}, weights = 0.f;
    for (int i = 0; i < rows.count; ++i, from += stride) {
      const float row_weight = rows.weight(i);
      for (int j = 0; j < columns.count; ++j) {
        const float weight = row_weight * columns.weight(j);
        weights += weight;
        for (int c = 0; c < 3; ++c) sum[c] += weight * from[j * 3 + c];
      }
    }
    T* to = batch + n * STRIDE_N + y * STRIDE_H + x * STRIDE_W;
    put(sum[0] / weights * SCALE_0 + BIAS_0, to);
    put(sum[1] / weights * SCALE_1 + BIAS_1, to + STRIDE_C);
    put(sum[2] / weights * SCALE_2 + BIAS_2, to + 2 * STRIDE_C);
  }
}
)cuda";

std::string head(const ResampleImages& a, const at::Tensor& batch) {
  std::string text = fmt::format(
      "using T = {};\nconstexpr int kThreads = {}, H = {}, W = {};\n"
      "constexpr long long STRIDE_N = {}, STRIDE_C = {}, STRIDE_H = {}, STRIDE_W = {};\n"
      "constexpr bool ANTIALIAS = {};\n",
      batch.scalar_type() == at::kByte ? "unsigned char" : "float", kThreads, batch.size(2),
      batch.size(3), batch.stride(0), batch.stride(1), batch.stride(2), batch.stride(3),
      a.antialias);
  for (size_t c = 0; c < 3; ++c) {
    text += fmt::format("constexpr float SCALE_{} = {:.9e}f, BIAS_{} = {:.9e}f;\n", c, a.scale[c],
                        c, a.bias[c]);
  }
  return text;
}

}  // namespace

void resample_images(const ResampleImages& a, const at::Tensor& batch, const Launcher& launcher) {
  TP_ASSERT(batch.size(0) == std::ssize(a.images));
  const at::Tensor images = at::from_blob(const_cast<ImageToResample*>(a.images.data()),
                                          {batch.size(0), kFields}, at::kLong)
                                .to(batch.device(), at::kLong, /*non_blocking=*/true);
  const int64_t blocks = (batch.numel() / 3 + kThreads - 1) / kThreads;
  const LaunchShape shape{.grid = {static_cast<unsigned>(std::min<int64_t>(
                                       blocks, int64_t{launcher.multiprocessors()} * kBlocks)),
                                   1},
                          .block = {kThreads, 1}};
  launcher({"resample_images", head(a, batch) + kKernel}, shape, a.pixels.data_ptr(),
           images.data_ptr(), batch.data_ptr(), static_cast<int>(batch.size(0)));
}

}  // namespace tensorpack::cuda
