// SPDX-License-Identifier: Apache-2.0
// Casts of many tensors in one kernel.
//
//   tensorpack::cast_together
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensorpack/cuda/kernels/launcher.h"

namespace tensorpack::cuda {

/// True if the kernel can do it: types that kernels know, one for all, and no gaps between
/// elements.
bool fits_cast(at::TensorList tensors, c10::ScalarType type);

/// By a kernel of ours, which rounds as libtorch does: each in `type`, laid out as it is.
std::vector<at::Tensor> cast(at::TensorList tensors, c10::ScalarType type,
                             const Launcher& launcher);

/// By libtorch's operators, on any device.
std::vector<at::Tensor> cast_unfused(at::TensorList tensors, c10::ScalarType type);

}  // namespace tensorpack::cuda
