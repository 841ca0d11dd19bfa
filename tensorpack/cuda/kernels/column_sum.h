// SPDX-License-Identifier: Apache-2.0
// Sums over the rows of a matrix: gradients of biases.
//
//   tensorpack::column_sum
#pragma once

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// By a kernel of ours: [C], or [1, C] if `keep_rows`, of a [rows, C] matrix or of images in
/// channels_last, added up in float.
/// `counters` are those of make_counters().
at::Tensor column_sum(const at::Tensor& input, const at::Tensor& counters, bool keep_rows,
                      c10::ScalarType type, const Launcher& launcher);

/// By libtorch's operators, on any device.
at::Tensor column_sum_unfused(const at::Tensor& input, bool keep_rows, c10::ScalarType type);

}  // namespace tensorpack::cuda
