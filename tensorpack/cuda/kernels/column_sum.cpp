// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/column_sum.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "tensorpack/cuda/kernels/prelude.h"

namespace tensorpack::cuda {
namespace {

constexpr int kUnroll = 4;
constexpr int kBlocks = 2;  // per multiprocessor

constexpr const char* kSum = R"cuda(
extern "C" __global__ void __launch_bounds__(kThreads, 2)
column_sum(const T* __restrict__ x, long long R, int C, Y* result, float2* partial,
           unsigned* counter) {
  const int c = first_column();
  float s[W] = {}, unused[W] = {};
  if (c < C) {
    for_rows(R, [&](long long r) { return load<W>(x + r * C + c); },
             [&](long long, const Vector<T, W>& row) {
      float f[W];
      unpack<W>(row, f);
#pragma unroll
      for (int i = 0; i < W; ++i) s[i] += f[i];
    });
  }
  combine(s, unused, C, partial, counter,
          [&](int column, float sum, float) { from_float(sum, result[column]); });
}
)cuda";

}  // namespace

at::Tensor column_sum(const at::Tensor& input, const at::Tensor& counters, bool keep_rows,
                      c10::ScalarType type, const Launcher& launcher) {
  const ColumnPlan plan = plan_columns({input});
  const LaunchShape shape = plan.shape_of_sums(launcher.multiprocessors(), kBlocks);
  const at::Tensor result = at::empty({plan.columns}, input.options().dtype(type));
  const at::Tensor partial =
      at::empty({shape.grid[1], plan.columns, 2}, input.options().dtype(at::kFloat));
  const KernelSource kernel{
      "column_sum",
      prelude() +
          fmt::format(
              "using T = {};\nusing Y = {};\nconstexpr int W = {}, U = {}, kThreads = {};\n",
              kernel_type(plan.type), kernel_type(type), plan.width, kUnroll,
              ColumnPlan::kThreads) +
          column_sums() + column_rows() + kSum};
  launcher(kernel, shape, input.data_ptr(), static_cast<long long>(plan.rows),
           static_cast<int>(plan.columns), result.data_ptr(), partial.data_ptr(),
           counters.data_ptr());
  return keep_rows ? result.view({1, -1}) : result;
}

at::Tensor column_sum_unfused(const at::Tensor& input, bool keep_rows, c10::ScalarType type) {
  const std::vector<int64_t> rows =
      input.dim() == 4 ? std::vector<int64_t>{0, 2, 3} : std::vector<int64_t>{0};
  return input.sum(rows, keep_rows, at::kFloat).to(type);
}

}  // namespace tensorpack::cuda
