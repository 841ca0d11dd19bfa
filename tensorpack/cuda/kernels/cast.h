// SPDX-License-Identifier: Apache-2.0
// Casts of many tensors in one kernel, some of which are put together by the way.
//
//   tensorpack::cast_together
#pragma once

#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct CastArguments {
  std::vector<at::Tensor> tensors = {};
  c10::ScalarType type = c10::kFloat;  ///< of the results
  /// How many of the tensors, one behind the other along their first dimension, make each result.
  /// Empty: each makes one.
  std::vector<int64_t> parts = {};
};

/// True if the kernel can do it: types that kernels know, one for all tensors, and no gaps between
/// elements.
bool fits_cast(const CastArguments& arguments);

/// By a kernel of ours, which rounds as libtorch does. What is not put together is laid out as it
/// was.
std::vector<at::Tensor> cast(const CastArguments& arguments, const Launcher& launcher);

/// By libtorch's operators, on any device.
std::vector<at::Tensor> cast_unfused(const CastArguments& arguments);

}  // namespace tensorpack::cuda
