// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/rows.h"

#include <algorithm>

#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

constexpr int kMostThreads = 1024;
constexpr int kWarp = 32;

constexpr const char* kRowSums = R"cuda(
template <class Combine>
__device__ __forceinline__ float over_block(float v, float neutral, Combine combine) {
  __shared__ float warps[32];
  for (int o = 16; o > 0; o /= 2) v = combine(v, __shfl_xor_sync(~0u, v, o));
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // whoever still reads what the last call left
  if (lane == 0) warps[warp] = v;
  __syncthreads();
  v = lane < kThreads / 32 ? warps[lane] : neutral;
  for (int o = 16; o > 0; o /= 2) v = combine(v, __shfl_xor_sync(~0u, v, o));
  return v;
}
__device__ __forceinline__ float sum_of_block(float v) {
  return over_block(v, 0.f, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float max_of_block(float v) {
  return over_block(v, -infinity(), [](float a, float b) { return fmaxf(a, b); });
}
)cuda";

constexpr const char* kDynamicShared = R"cuda(
#ifdef __CUDACC_RTC__
extern __shared__ __align__(16) unsigned char dynamic_shared[];
#else
alignas(16) static unsigned char dynamic_shared[256 << 10];
#endif
)cuda";

}  // namespace

RowPlan plan_rows(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.at(0);
  RowPlan plan{.type = first.scalar_type(), .columns = first.size(-1)};
  const auto fits = [&](int64_t width) {
    return plan.columns % width == 0 &&
           std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
             const auto bytes = static_cast<uintptr_t>(width) * tensor.element_size();
             return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % bytes == 0;
           });
  };
  const int widest = kLargestLoad / static_cast<int>(first.element_size());
  for (int width = widest; width > 1; width /= 2) {
    if (fits(width)) {
      plan.width = width;
      break;
    }
  }
  const int64_t useful = (plan.columns / plan.width + kWarp - 1) / kWarp * kWarp;
  plan.threads = static_cast<int>(std::min<int64_t>(useful, kMostThreads));
  return plan;
}

std::string row_sums() { return kRowSums; }
std::string dynamic_shared() { return kDynamicShared; }

}  // namespace tensorpack::cuda
