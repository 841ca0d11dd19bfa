// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/columns.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/sizes.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

constexpr int kWarp = 32;
constexpr int64_t kLine = 128;  // bytes that the memory gives at a time
constexpr int64_t kFewSums = 8;

// Threads of a block that lie side by side: a power of two, as the sums want it.
int threads_across(const ColumnPlan& plan) {
  const int64_t needed = plan.columns / plan.width;
  int threads = 1;
  while (threads < kWarp && threads < needed) threads *= 2;
  return threads;
}

// How many blocks lie side by side.
int64_t blocks_across(const ColumnPlan& plan, int threads) {
  return divide_up(plan.columns / plan.width, threads);
}

LaunchShape shape_with(const ColumnPlan& plan, int across, int64_t resident) {
  const int down = ColumnPlan::kThreads / across;
  const int64_t useful = divide_up(plan.rows, down);
  const int64_t blocks = blocks_across(plan, across);
  return {
      .grid = {static_cast<unsigned>(blocks),
               static_cast<unsigned>(std::min(useful, std::max<int64_t>(1, resident / blocks)))},
      .block = {static_cast<unsigned>(across), static_cast<unsigned>(down)}};
}

// Sums of blocks that a thread of the last block reads one after the other.
int64_t sums_in_a_row(const LaunchShape& shape, int width) {
  const int64_t threads_of_column = ColumnPlan::kThreads / (int64_t{shape.block[0]} * width);
  return shape.grid[1] / threads_of_column;
}

}  // namespace

LaunchShape ColumnPlan::shape(int multiprocessors, int blocks_per_multiprocessor) const {
  return shape_with(*this, threads_across(*this),
                    int64_t{multiprocessors} * blocks_per_multiprocessor);
}

LaunchShape ColumnPlan::shape_of_sums(int multiprocessors, int blocks_per_multiprocessor) const {
  const int64_t resident = int64_t{multiprocessors} * blocks_per_multiprocessor;
  const auto bytes = static_cast<int64_t>(c10::elementSize(type)) * width;
  int across = threads_across(*this);
  LaunchShape shape = shape_with(*this, across, resident);
  // All wait for the last block: narrow ones have fewer sums to add up.
  while (sums_in_a_row(shape, width) > kFewSums && across * bytes > kLine &&
         blocks_across(*this, across / 2) <= kCounters) {
    across /= 2;
    shape = shape_with(*this, across, resident);
  }
  return shape;
}

bool is_column_matrix(at::IntArrayRef sizes, at::IntArrayRef strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) return false;
  if (sizes.size() == 2) return strides[1] == 1 && strides[0] == sizes[1];
  if (sizes.size() != 4) return false;
  const int64_t c = sizes[1], h = sizes[2], w = sizes[3];
  return strides[1] == 1 && strides[3] == c && strides[2] == w * c && strides[0] == h * w * c;
}

ColumnPlan plan_columns(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.at(0);
  ColumnPlan plan{
      .type = first.scalar_type(), .rows = first.numel() / first.size(1), .columns = first.size(1)};
  const auto fits = [&](int width) {
    const auto bytes = static_cast<uintptr_t>(width) * first.element_size();
    return bytes <= kLargestLoad && plan.columns % width == 0 &&
           std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
             return reinterpret_cast<uintptr_t>(tensor.data_ptr()) % bytes == 0;
           });
  };
  for (const int width : {8, 4, 2}) {
    if (fits(width)) {
      plan.width = width;
      break;
    }
  }
  TP_ASSERT(blocks_across(plan, threads_across(plan)) <= kCounters);
  return plan;
}

at::Tensor laid_out_like(const at::Tensor& other, const at::Tensor& tensor) {
  if (tensor.strides() == other.strides() && tensor.scalar_type() == other.scalar_type()) {
    return tensor;
  }
  return at::empty_strided(other.sizes(), other.strides(), other.options()).copy_(tensor);
}

at::Tensor make_counters(c10::Device device) {
  return at::zeros({kCounters}, at::TensorOptions(device).dtype(at::kInt));
}

}  // namespace tensorpack::cuda
