// SPDX-License-Identifier: Apache-2.0
// Whether two runs gave the same numbers, as far as kernels repeat themselves.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// Whether a value is what was expected, up to rounding. `start` is what a variable held before the
/// run: one step changes it little, so its change is what must agree.
bool is_equal(at::Tensor expected, const at::Tensor& value, const at::Tensor& start = {});

/// What a run gave and left behind.
struct Outcome {
  NamedTensors outputs = {};
  NamedTensors variables = {};
};

/// "the tensor 'cost'", or "" when there is no difference. `start` has the variables before the
/// run.
std::string first_difference(const Outcome& function, const Outcome& program,
                             const NamedTensors& start);

/// Whether function and program agree as well as each agrees with itself. Some kernels of CUDA do
/// not repeat themselves whatever they are told: attention, for one.
bool agree_within_noise(const Outcome& function, const Outcome& function_again,
                        const Outcome& program, const Outcome& program_again,
                        const NamedTensors& start);

}  // namespace tensorpack
