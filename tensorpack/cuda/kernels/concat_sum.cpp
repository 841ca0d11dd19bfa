// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/concat_sum.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

constexpr int kUnroll = 4;
constexpr int kBlocks = 2;  // per multiprocessor

// A thread's columns lie in one part.
constexpr const char* kConcatSum = R"cuda(
struct Parts {
  const T* data[kParts];
  long long stride[kParts];  // from row to row
  int first[kParts];         // column of all
  int count;
};

extern "C" __global__ void __launch_bounds__(kThreads, 2)
concat_sum(Parts parts, long long R, int C, T* __restrict__ all, Y* sums, float2* partial,
           unsigned* counter) {
  const int c = first_column();
  float s[W] = {}, unused[W] = {};
  if (c < C) {
    int p = 0;
    while (p + 1 < parts.count && parts.first[p + 1] <= c) ++p;
    const T* __restrict__ x = parts.data[p] + (c - parts.first[p]);
    const long long stride = parts.stride[p];
    for_rows(R, [&](long long r) { return load<W>(x + r * stride); },
             [&](long long r, const Vector<T, W>& row) {
      *reinterpret_cast<Vector<T, W>*>(all + r * C + c) = row;
      float f[W];
      unpack<W>(row, f);
#pragma unroll
      for (int i = 0; i < W; ++i) s[i] += f[i];
    });
  }
  combine(s, unused, C, partial, counter,
          [&](int column, float sum, float) { from_float(sum, sums[column]); });
}
)cuda";

// As the kernel declares it.
struct Parts {
  const void* data[kMostConcatenated] = {};
  long long stride[kMostConcatenated] = {};
  int first[kMostConcatenated] = {};
  int count = 0;
};

Parts table_of(const std::vector<at::Tensor>& parts) {
  TP_ASSERT(parts.size() <= kMostConcatenated);
  Parts table;
  int64_t columns = 0;
  for (const at::Tensor& part : parts) {
    const std::optional<int64_t> stride = row_stride(part.sizes(), part.strides());
    TP_ASSERT(stride.has_value());
    table.data[table.count] = part.data_ptr();
    table.stride[table.count] = *stride;
    table.first[table.count] = static_cast<int>(columns);
    ++table.count;
    columns += part.size(-1);
  }
  return table;
}

// As many columns at a time as every row of every part begins and ends with.
int width_of(const Parts& parts, int64_t columns, const at::Tensor& all) {
  const auto size = static_cast<int64_t>(all.element_size());
  const auto is_aligned = [](const void* data, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0;
  };
  const auto fits = [&](int64_t width) {
    bool fit = columns % width == 0 && is_aligned(all.data_ptr(), width * size);
    for (int i = 0; i < parts.count; ++i) {
      fit &= parts.first[i] % width == 0 && parts.stride[i] % width == 0 &&
             is_aligned(parts.data[i], width * size);
    }
    return fit;
  };
  int64_t width = kLargestLoad / size;
  while (width > 1 && !fits(width)) width /= 2;
  return static_cast<int>(width);
}

}  // namespace

std::optional<int64_t> row_stride(at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (sizes.empty() || (sizes.back() != 1 && strides.back() != 1)) return std::nullopt;
  std::optional<int64_t> stride;
  int64_t rows = 1;
  for (size_t d = sizes.size() - 1; d-- > 0;) {
    if (sizes[d] == 1) continue;
    if (!stride) stride = strides[d];
    if (strides[d] != *stride * rows) return std::nullopt;
    rows *= sizes[d];
  }
  return stride.value_or(sizes.back());
}

std::tuple<at::Tensor, at::Tensor> concat_sum(const std::vector<at::Tensor>& parts,
                                              const at::Tensor& counters, bool keep_rows,
                                              c10::ScalarType type, const Launcher& launcher) {
  std::vector<int64_t> sizes = parts.at(0).sizes().vec();
  sizes.back() = 0;
  for (const at::Tensor& part : parts) sizes.back() += part.size(-1);
  const auto options = parts[0].options();
  const at::Tensor all = at::empty(sizes, options);
  const Parts table = table_of(parts);
  const ColumnPlan plan{.type = parts[0].scalar_type(),
                        .rows = all.numel() / sizes.back(),
                        .columns = sizes.back(),
                        .width = width_of(table, sizes.back(), all)};
  const LaunchShape shape = plan.shape_of_sums(launcher.multiprocessors(), kBlocks);
  const at::Tensor sums = at::empty({plan.columns}, options.dtype(type));
  const at::Tensor partial = at::empty({shape.grid[1], plan.columns, 2}, options.dtype(at::kFloat));
  const KernelSource kernel{
      "concat_sum", prelude() +
                        fmt::format("using T = {};\nusing Y = {};\nconstexpr int W = {}, U = {}, "
                                    "kThreads = {}, kParts = {};\n",
                                    kernel_type(plan.type), kernel_type(type), plan.width, kUnroll,
                                    ColumnPlan::kThreads, kMostConcatenated) +
                        column_sums() + column_rows() + kConcatSum};
  launcher(kernel, shape, table, static_cast<long long>(plan.rows), static_cast<int>(plan.columns),
           all.data_ptr(), sums.data_ptr(), partial.data_ptr(), counters.data_ptr());
  return {all, keep_rows ? sums.view({1, -1}) : sums};
}

std::tuple<at::Tensor, at::Tensor> concat_sum_unfused(const std::vector<at::Tensor>& parts,
                                                      bool keep_rows, c10::ScalarType type) {
  const at::Tensor all = at::cat(parts, -1);
  return {all, all.view({-1, all.size(-1)}).sum({0}, keep_rows, at::kFloat).to(type)};
}

}  // namespace tensorpack::cuda
