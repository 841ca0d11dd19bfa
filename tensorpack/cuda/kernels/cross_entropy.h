// SPDX-License-Identifier: Apache-2.0
// The loss of a classifier and its gradient, in one pass over the logits.
//
//   tensorpack::cross_entropy  loss, how many rows count, and the gradient of the logits
#pragma once

#include <tuple>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct CrossEntropyArguments {
  at::Tensor logits;     // [rows, classes], contiguous
  at::Tensor target;     // [rows], int64
  at::Tensor loss_grad;  // of the loss, a scalar in float
  bool mean = true;      // over the rows that count, or their sum
  int64_t ignore_index = -100;
  c10::ScalarType grad_type = c10::kFloat;
};

/// The loss and the number of rows that are not ignored, in float, and the gradient.
using CrossEntropyResults = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// True if a row of so many logits can be kept on chip.
bool fits_cross_entropy(c10::ScalarType type, int64_t classes);

/// By kernels of ours. A target that is no class makes the loss NaN.
CrossEntropyResults cross_entropy(const CrossEntropyArguments& arguments, const Launcher& launcher);

/// By libtorch's operators, on any device.
CrossEntropyResults cross_entropy_unfused(const CrossEntropyArguments& arguments);

}  // namespace tensorpack::cuda
