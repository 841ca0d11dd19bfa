// SPDX-License-Identifier: Apache-2.0
// What a pointwise operator computes for each element: a few steps, written as text.
//
//   mul %0 2 : float ; leaky_relu %2 0.2 : float -> %3
//
// Values are numbered: the inputs first (here %0 and %1), then the result of each step. A step has
// the type that libtorch's operator would give its result, and is rounded to it.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct Operand {
  static constexpr int kNumber = -1;

  int value = kNumber;  ///< kNumber: it is `number`
  double number = 0;

  bool operator==(const Operand&) const = default;
};

struct Step {
  std::string op = {};
  std::vector<Operand> operands = {};
  c10::ScalarType type = c10::kFloat;  ///< of the result

  bool operator==(const Step&) const = default;
};

struct Formula {
  int inputs = 0;
  std::vector<Step> steps = {};
  std::vector<int> results = {};  ///< the values to give

  bool operator==(const Formula&) const = default;
};

std::string to_text(const Formula& formula);
/// Throws Error if the text is not one of to_text() for that many inputs.
Formula parse_formula(const std::string& text, int inputs);

/// The types that steps can have: those of kernels, and bool.
bool has_step_type(c10::ScalarType type);
/// The types that inputs can have: those of steps, and bytes.
bool has_input_type(c10::ScalarType type);
/// Its name in a kernel.
std::string input_type(c10::ScalarType type);

/// True if there is an operator of that name with that many operands.
bool is_pointwise(const std::string& op, size_t operands);
/// By libtorch's operator.
at::Tensor run_step(const Step& step, const std::vector<at::Tensor>& values);
/// The formula's operators as device code: a function of floats `op_<name>` for each, and what they
/// are made of. The text must follow the prelude and a `constexpr bool kFast`.
std::string pointwise_functions(const Formula& formula);

}  // namespace tensorpack::cuda
