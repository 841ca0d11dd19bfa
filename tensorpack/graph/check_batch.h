// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Throws an Error that names the input unless place_batch() gives one tensor for each input, of
/// its shape and dtype; one with a default may be missing.
void check_batch(const std::vector<TensorSpec>& inputs, const std::vector<at::Tensor>& batch);

/// A batch with one tensor for each input. Data may leave all inputs with a default out: these are
/// then undefined. Throws an Error for any other number of tensors.
std::vector<at::Tensor> place_batch(const std::vector<TensorSpec>& inputs,
                                    std::vector<at::Tensor> batch);

}  // namespace tensorpack
