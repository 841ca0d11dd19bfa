// SPDX-License-Identifier: Apache-2.0
// Chains of pointwise operators, as one kernel that is generated for each.
//
//   tensorpack::pointwise, tensorpack::pointwise_sum
//
// Note [Pointwise kernels]
// Elements are computed in the order in which the results lie in memory, a few neighbours by each
// thread. An input that lies in the same order is read as vectors; any other, one that is broadcast
// or transposed, by the position that each element has in it, for which the sizes are part of the
// kernel's text. Arithmetic is in float, and each step is rounded where libtorch's operator rounds.
#pragma once

#include <vector>

#include "tensorpack/cuda/kernels/formula.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// How results are laid out: densely, in some order of the dimensions.
struct DenseLayout {
  std::vector<int64_t> sizes = {};
  std::vector<int64_t> strides = {};
};

/// True if every element has a place of its own, and there are no gaps.
bool is_dense(at::IntArrayRef sizes, at::IntArrayRef strides);

/// By a kernel of ours: the results of the formula. Inputs are broadcast to the layout's sizes.
std::vector<at::Tensor> pointwise(const std::vector<at::Tensor>& inputs, const Formula& formula,
                                  const DenseLayout& layout, const Launcher& launcher);

/// By libtorch's operators, on any device.
std::vector<at::Tensor> pointwise_unfused(const std::vector<at::Tensor>& inputs,
                                          const Formula& formula, const DenseLayout& layout);

/// Sums of the first result over the rows of a matrix of so many columns, as which it lies in
/// memory.
struct PointwiseSum {
  int64_t columns = 0;
  c10::ScalarType type = c10::kFloat;  ///< they are added up in float
  std::vector<int64_t> sizes = {};     ///< of the sums
};

/// The results of the formula, and after them the sums. `counters` are those of make_counters().
std::vector<at::Tensor> pointwise_sum(const std::vector<at::Tensor>& inputs,
                                      const at::Tensor& counters, const Formula& formula,
                                      const DenseLayout& layout, const PointwiseSum& sum,
                                      const Launcher& launcher);

std::vector<at::Tensor> pointwise_sum_unfused(const std::vector<at::Tensor>& inputs,
                                              const Formula& formula, const DenseLayout& layout,
                                              const PointwiseSum& sum);

}  // namespace tensorpack::cuda
