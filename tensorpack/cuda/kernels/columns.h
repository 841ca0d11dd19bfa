// SPDX-License-Identifier: Apache-2.0
// Tensors as matrices whose columns are channels, and how kernels walk over them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tensorpack/cuda/jit.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct ColumnPlan {
  static constexpr int kThreads = 512;

  c10::ScalarType type = c10::kFloat;
  int64_t rows = 0;
  int64_t columns = 0;
  int width = 1;  ///< neighbouring columns of one thread

  /// For kernels whose rows have nothing to do with each other.
  LaunchShape shape(int multiprocessors, int blocks_per_multiprocessor) const;
  /// For kernels that sum over rows.
  LaunchShape shape_of_sums(int multiprocessors, int blocks_per_multiprocessor) const;
};

/// True for sizes and strides that are a dense matrix [rows, channels]: [N, C] as it is, or
/// [N, C, H, W] in channels_last. An empty tensor is none.
bool is_column_matrix(at::IntArrayRef sizes, at::IntArrayRef strides);

/// The plan for tensors that all are laid out as the first is.
ColumnPlan plan_columns(const std::vector<at::Tensor>& tensors);

/// The tensor with the type and the strides of `other`; itself if it has them already.
at::Tensor laid_out_like(const at::Tensor& other, const at::Tensor& tensor);

/// Device code: what all kernels have, and T, W columns of a thread, U rows that it has in flight
/// and kThreads threads.
std::string column_head(const ColumnPlan& plan, int unroll);
/// Device code that needs that head. See Note [Column reductions].
///
/// combine(a, b, C, partial, counter, finish): sums over all rows, of which `finish` gets each
/// column's once.
std::string column_sums();
/// first_column() of this thread; for_rows(R, load, use) and for_rows<kFromTheEnd>(R, load, use), U
/// rows at a time.
std::string column_rows();

/// Memory that column reductions count their blocks in: zeros, before and after each of them. Those
/// that use the same must not run at the same time.
at::Tensor make_counters(c10::Device device);
inline constexpr int64_t kCounters = 1024;

}  // namespace tensorpack::cuda
