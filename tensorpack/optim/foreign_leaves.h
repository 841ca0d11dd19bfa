// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Warns, once for each list, of tensors that `cost` depends on and that require gradients, but are
/// neither variables of the graph nor computed from inputs: they would not be trained. Called while
/// a call is recorded and the cost still has its history; does nothing otherwise.
void warn_of_foreign_leaves(const at::Tensor& cost);

}  // namespace tensorpack
