// SPDX-License-Identifier: Apache-2.0
// Shapes and values of inputs that a run is not given.
#pragma once

#include <vector>

#include "tensorpack/graph/tensor_spec.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The shape of an input that is not given. Open dimensions have the sizes that the inputs given
/// have in the same place, if their trial shapes agree there; without one, the sizes of the trial
/// shape. `given` has one tensor for each of `inputs`, undefined where there is none.
Shape shape_of_left_out(const TensorSpec& input, const std::vector<TensorSpec>& inputs,
                        const std::vector<at::Tensor>& given);

/// Gives undefined inputs their defaults, which draw from `generator`.
void fill_defaults(const std::vector<TensorSpec>& inputs, std::vector<at::Tensor>& tensors,
                   const at::Generator& generator);

}  // namespace tensorpack
