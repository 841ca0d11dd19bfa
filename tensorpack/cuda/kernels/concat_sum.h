// SPDX-License-Identifier: Apache-2.0
// Matrices side by side, and sums over the rows of all: the gradient of several layers over one
// input, as queries, keys and values have it, and those of their biases.
//
//   tensorpack::concat_sum
#pragma once

#include <optional>
#include <tuple>
#include <vector>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// As many as one kernel puts together.
inline constexpr size_t kMostConcatenated = 8;

/// How far apart rows of neighbouring elements are, all dimensions but the last as one; nothing if
/// they are not all as far apart, or elements are no neighbours.
std::optional<int64_t> row_stride(at::IntArrayRef sizes, at::IntArrayRef strides);

/// By a kernel of ours: the parts along their last dimension, and the sums, [C], or [1, C] if
/// `keep_rows`, added up in float. The parts have one type and a row_stride().
/// `counters` are those of make_counters().
std::tuple<at::Tensor, at::Tensor> concat_sum(const std::vector<at::Tensor>& parts,
                                              const at::Tensor& counters, bool keep_rows,
                                              c10::ScalarType type, const Launcher& launcher);

/// By libtorch's operators, on any device.
std::tuple<at::Tensor, at::Tensor> concat_sum_unfused(const std::vector<at::Tensor>& parts,
                                                      bool keep_rows, c10::ScalarType type);

}  // namespace tensorpack::cuda
