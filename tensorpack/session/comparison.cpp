// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/comparison.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

namespace tensorpack {
namespace {

// Kernels may round differently from run to run; frozen values differ by far more.
constexpr double kTolerance = 1e-3;
constexpr double kToleranceOnAverage = 1e-2;
// Where function or program do not repeat themselves, they may be this much farther apart.
constexpr double kTimesNoise = 4;

double largest_magnitude(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return at::nan_to_num(tensor.abs()).max().item<double>();
}

at::Tensor beside(const at::Tensor& other, const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(other.device()) : tensor;
}

double mean_difference(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes() || a.numel() == 0) return 0;
  return at::nan_to_num((beside(b, a) - b).abs()).mean(at::kDouble).item<double>();
}

// Two results of the function and two of the program, each from the same state.
struct Repeated {
  at::Tensor function = {}, function_again = {};
  at::Tensor program = {}, program_again = {};
};

// For what does not repeat itself. On average, because single elements may differ at will: the
// first step of Adam is the sign of the gradient, however small.
bool is_equal_on_average(const Repeated& results, const at::Tensor& start) {
  if (!results.function.defined() || !results.function.is_floating_point() ||
      results.function.sizes() != results.program.sizes()) {
    return false;
  }
  const at::Tensor expected = beside(results.program, results.function);
  const double scale = mean_difference(start.defined() ? start : expected * 0, expected);
  const double noise = mean_difference(expected, results.function_again) +
                       mean_difference(results.program, results.program_again);
  return mean_difference(expected, results.program) <=
         kToleranceOnAverage * scale + kTimesNoise * noise;
}

at::Tensor find(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? at::Tensor() : found->second;
}

}  // namespace

bool is_equal(at::Tensor expected, const at::Tensor& value, const at::Tensor& start) {
  if (!expected.defined() || !value.defined()) return expected.defined() == value.defined();
  if (expected.sizes() != value.sizes() || expected.scalar_type() != value.scalar_type()) {
    return false;
  }
  expected = beside(value, expected);
  if (expected.layout() != at::kStrided) return is_equal(expected.to_dense(), value.to_dense());
  if (at::equal(expected, value)) return true;
  if (!expected.is_floating_point() && !expected.is_complex()) return false;
  if (!at::equal(at::isnan(expected), at::isnan(value))) return false;
  const double scale =
      largest_magnitude(start.defined() ? expected - beside(value, start) : expected);
  const double epsilon =
      expected.scalar_type() == at::kDouble || expected.scalar_type() == at::kComplexDouble
          ? std::numeric_limits<double>::epsilon()
          : std::numeric_limits<float>::epsilon();
  const double rounding = 4 * epsilon * largest_magnitude(expected);
  return largest_magnitude(expected - value) <= kTolerance * scale + rounding;
}

std::string first_difference(const Outcome& function, const Outcome& program,
                             const NamedTensors& start) {
  for (const auto& [name, value] : program.outputs) {
    if (!is_equal(find(function.outputs, name), value)) return "the tensor '" + name + "'";
  }
  for (const auto& [name, value] : program.variables) {
    if (!is_equal(find(function.variables, name), value, find(start, name))) {
      return "the variable '" + name + "'";
    }
  }
  return "";
}

bool agree_within_noise(const Outcome& function, const Outcome& function_again,
                        const Outcome& program, const Outcome& program_again,
                        const NamedTensors& start) {
  const auto agree = [](const NamedTensors& f, const NamedTensors& f_again, const NamedTensors& p,
                        const NamedTensors& p_again, const NamedTensors& from) {
    return std::all_of(p.begin(), p.end(), [&](const auto& item) {
      const auto& [name, value] = item;
      return is_equal(find(f, name), value, find(from, name)) ||
             is_equal_on_average({find(f, name), find(f_again, name), value, find(p_again, name)},
                                 find(from, name));
    });
  };
  return agree(function.outputs, function_again.outputs, program.outputs, program_again.outputs,
               {}) &&
         agree(function.variables, function_again.variables, program.variables,
               program_again.variables, start);
}

}  // namespace tensorpack
