// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/kernels/columns.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack::cuda {
namespace {

constexpr int kLargestLoad = 16;  // bytes
constexpr int kWarp = 32;

template <typename Number>
Number divide_up(Number a, Number b) {
  return (a + b - 1) / b;
}

// Threads of a block that lie side by side: a power of two, as the sums want it.
int threads_across(const ColumnPlan& plan) {
  const int64_t needed = plan.columns / plan.width;
  int threads = 1;
  while (threads < kWarp && threads < needed) threads *= 2;
  return threads;
}

}  // namespace

unsigned ColumnPlan::blocks_across() const {
  return static_cast<unsigned>(divide_up<int64_t>(columns / width, threads_across(*this)));
}

LaunchShape ColumnPlan::shape(int multiprocessors, int blocks_per_multiprocessor) const {
  const int across = threads_across(*this);
  const int down = kThreads / across;
  const int64_t useful = divide_up<int64_t>(rows, down);
  const int64_t resident =
      std::max<int64_t>(1, int64_t{multiprocessors} * blocks_per_multiprocessor / blocks_across());
  return {.grid = {blocks_across(), static_cast<unsigned>(std::min(useful, resident))},
          .block = {static_cast<unsigned>(across), static_cast<unsigned>(down)}};
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
  TP_ASSERT(plan.blocks_across() <= kCounters);
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
