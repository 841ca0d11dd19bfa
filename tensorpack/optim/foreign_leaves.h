// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorpack {

/// Warns, once for each list, of tensors that `cost` depends on and that require gradients, but are
/// no variables of the graph: they would not be trained. Called in a tower or CallScope, while the
/// cost still has its history.
void warn_of_foreign_leaves(const at::Tensor& cost);

}  // namespace tensorpack
