// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/comparison.h"

#include <ATen/ATen.h>

#include <limits>

namespace tensorpack {
namespace {

// Kernels may round differently from run to run; frozen values differ by far more.
constexpr double kTolerance = 1e-3;
// What was seen of noise is less than all of it.
constexpr double kTimesNoise = 4;
// A result of which rounding decides this much is not defined well.
constexpr double kIllDefined = 0.05;

double largest_magnitude(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return at::nan_to_num(tensor.abs()).max().item<double>();
}

at::Tensor beside(const at::Tensor& other, const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(other.device()) : tensor;
}

double mean_magnitude(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.numel() == 0) return 0;
  return at::nan_to_num(tensor.abs()).mean(at::kDouble).item<double>();
}

bool have_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.is_floating_point() && a.sizes() == b.sizes() &&
         a.scalar_type() == b.scalar_type();
}

// On average, because single elements may differ at will. The program's own noise is no excuse
// unless the function's result is noise as well: memory that was never written is noise, too.
bool is_equal_within(const at::Tensor& function_spread, const at::Tensor& program_spread,
                     double share, at::Tensor expected, const at::Tensor& value,
                     const at::Tensor& start) {
  const bool may_differ = share > 0 || function_spread.defined() || program_spread.defined();
  if (!may_differ || !have_difference(expected, value)) return false;
  expected = beside(value, expected);
  if (!at::equal(at::isnan(expected), at::isnan(value))) return false;
  const double scale = mean_magnitude(start.defined() ? expected - beside(value, start) : expected);
  double noise = mean_magnitude(function_spread);
  if (noise > kIllDefined * scale) noise += mean_magnitude(program_spread);
  return mean_magnitude(expected - value) <= share * scale + kTimesNoise * noise;
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

void widen(Outcome& spread, const Outcome& run, const Outcome& again) {
  const auto widen_each = [](NamedTensors& spread, const NamedTensors& one,
                             const NamedTensors& other) {
    for (const auto& [name, value] : one) {
      const at::Tensor again = find(other, name);
      if (!have_difference(value, again)) continue;
      const at::Tensor difference = at::nan_to_num((value - beside(value, again)).abs());
      at::Tensor& largest = spread[name];
      largest = largest.defined() ? at::maximum(largest, difference) : difference;
    }
  };
  widen_each(spread.outputs, run.outputs, again.outputs);
  widen_each(spread.variables, run.variables, again.variables);
}

std::string describe(const Difference& difference) {
  return (difference.is_variable ? "the variable '" : "the tensor '") + difference.name + "'";
}

std::vector<Difference> differences(const Outcome& function, const Outcome& program,
                                    const NamedTensors& start, const Noise& noise) {
  std::vector<Difference> found;
  const auto compare = [&](NamedTensors Outcome::*part, bool is_variable) {
    for (const auto& [name, value] : program.*part) {
      const at::Tensor expected = find(function.*part, name);
      const at::Tensor from = is_variable ? find(start, name) : at::Tensor();
      if (is_equal(expected, value, from) ||
          is_equal_within(find(noise.of_function.*part, name), find(noise.of_program.*part, name),
                          noise.share, expected, value, from)) {
        continue;
      }
      found.push_back({is_variable, name});
    }
  };
  compare(&Outcome::outputs, /*is_variable=*/false);
  compare(&Outcome::variables, /*is_variable=*/true);
  return found;
}

Outcome part_of(const Outcome& outcome, const std::vector<Difference>& names) {
  Outcome part;
  for (const Difference& difference : names) {
    const auto which = difference.is_variable ? &Outcome::variables : &Outcome::outputs;
    const auto found = (outcome.*which).find(difference.name);
    if (found != (outcome.*which).end()) (part.*which).insert(*found);
  }
  return part;
}

}  // namespace tensorpack
