// SPDX-License-Identifier: Apache-2.0
// Layer norm over the last dimension, with the residual before it and the casts around it.
//
//   tensorpack::layer_norm           s = x + residual; y = layer_norm(s), in any type
//   tensorpack::layer_norm_backward  from the gradient of y to that of s, another one added, with a
//                                    copy in another type and sums over its rows, which are the
//                                    gradient of the bias of the layer before; the gradients of
//                                    weight and bias
#pragma once

#include <c10/util/Optional.h>

#include <tuple>
#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct LayerNormArguments {
  at::Tensor input;                                  // contiguous
  c10::optional<at::Tensor> residual = {};           // as large, of any type
  c10::optional<at::Tensor> weight = {}, bias = {};  // float
  double epsilon = 1e-5;
  c10::ScalarType type = c10::kFloat;  // of y
  std::vector<int64_t> size = {};      // of y, which has as many elements
};

struct LayerNormBackwardArguments {
  at::Tensor grad;                           // of y, in any type and shape
  at::Tensor input;                          // s
  c10::optional<at::Tensor> weight = {};     // float
  at::Tensor mean, rstd;                     // of each row, in float
  c10::optional<at::Tensor> other = {};      // to be added to the gradient of s
  c10::optional<c10::ScalarType> copy = {};  // the type of a copy of that sum
  // The type of the sums over the rows: of the copy, or of the gradient of s where there is none.
  c10::optional<c10::ScalarType> sum = {};
  bool keep_rows = false;  // [1, columns] instead of [columns], of those
};

/// y, s (undefined without a residual), mean and 1 / standard deviation.
using LayerNormResults = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
/// The gradients of s, weight and bias, the copy of the first and its sums.
using LayerNormGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

/// What kernels are generated for.
struct LayerNormPlan {
  static constexpr int kThreads = 256;  ///< of a block

  int64_t columns = 0;
  int width = 1;                                 ///< neighbouring elements of one thread
  c10::ScalarType stream = c10::kFloat;          ///< of x, s and its gradient
  c10::optional<c10::ScalarType> residual = {};  ///< what is added, if anything
  c10::ScalarType result = c10::kFloat;          ///< of y and its gradient
  bool weight = false;                           ///< backward
  c10::optional<c10::ScalarType> copy = {};      ///< backward
  c10::optional<c10::ScalarType> sum = {};       ///< backward
};
KernelSource layer_norm_kernel(const LayerNormPlan& plan);
/// With registers for so many blocks on a multiprocessor.
KernelSource layer_norm_backward_kernel(const LayerNormPlan& plan, int blocks);
KernelSource layer_norm_finish_kernel(const LayerNormPlan& plan);

/// True if a warp can keep a row in its registers.
bool fits_layer_norm(int64_t columns);
/// True if a block has room for the sums of its rows.
bool fits_layer_norm_sum(int64_t columns);

/// By kernels of ours.
LayerNormResults layer_norm(const LayerNormArguments& arguments, const Launcher& launcher);
LayerNormGradients layer_norm_backward(const LayerNormBackwardArguments& arguments,
                                       const Launcher& launcher);

/// By libtorch's operators, on any device.
LayerNormResults layer_norm_unfused(const LayerNormArguments& arguments);
LayerNormGradients layer_norm_backward_unfused(const LayerNormBackwardArguments& arguments);

}  // namespace tensorpack::cuda
