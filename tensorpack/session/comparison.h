// SPDX-License-Identifier: Apache-2.0
// Whether two runs gave the same numbers, as far as kernels repeat themselves.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/named_tensors.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Whether a value is what was expected, up to rounding. `start` is what a variable held before the
/// run: one step changes it little, so its change is what must agree.
bool is_equal(const at::Tensor& expected, const at::Tensor& value, const at::Tensor& start = {});

/// Whether two tensors of one shape and type hold the same bits.
bool have_same_bits(const at::Tensor& a, const at::Tensor& b);

/// What a run gave and left behind.
struct Outcome {
  NamedTensors outputs = {};
  NamedTensors variables = {};
};

/// How far apart function and program may be by rounding, as far as it was seen. A gradient that
/// should be zero, of a bias before batch norm, is nothing but rounding; the first step of Adam is
/// its sign.
struct Noise {
  /// Of a value, or of a variable's change: noise in any case, on average.
  double share = 0;
  /// The largest difference of each element between runs that differ by rounding.
  Outcome of_function = {};
  Outcome of_program = {};
};

/// Adds what two more runs show. Computed on `device`; kept in the memory of `again`.
void widen(Outcome& spread, const Outcome& run, Outcome again, c10::Device device = c10::kCPU);

/// A result on which function and program disagree.
struct Difference {
  bool is_variable = false;
  std::string name = {};
};

/// "the tensor 'cost'"
std::string describe(const Difference& difference);

/// All of them, outputs first. `start` has the variables before the run. Compared on `device`, one
/// result after the other, wherever they are: the host takes a second for what a GPU does at once.
std::vector<Difference> differences(const Outcome& function, const Outcome& program,
                                    const NamedTensors& start, c10::Device device = c10::kCPU);

/// Of results that differ, those that do by more than noise.
std::vector<Difference> beyond(const Noise& noise, const Outcome& function, const Outcome& program,
                               const NamedTensors& start, c10::Device device = c10::kCPU);

/// What a run gave under those names.
Outcome part_of(const Outcome& outcome, const std::vector<Difference>& names);

}  // namespace tensorpack
