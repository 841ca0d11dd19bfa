// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Throws an Error that names the input unless there is one tensor for each input, of its shape and
/// dtype.
void check_batch(const std::vector<TensorSpec>& inputs, const std::vector<at::Tensor>& batch);

/// The same for the number of tensors alone.
void check_batch_size(const std::vector<TensorSpec>& inputs, const std::vector<at::Tensor>& batch);

}  // namespace tensorpack
