// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/comparison.h"

#include <ATen/ATen.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "tensorpack/graph/operator_watch.h"

namespace tensorpack {
namespace {

// Kernels may round differently from run to run; frozen values differ by far more.
constexpr double kTolerance = 1e-3;
// What was seen of noise is less than all of it.
constexpr double kTimesNoise = 4;
// A result of which rounding decides this much is not defined well.
constexpr double kIllDefined = 0.05;

// What kernels compute, read together: waiting for each number would take longer than computing it.
class Scalars {
 public:
  struct Place {
    at::ScalarType type;
    size_t index;
  };

  Place add(const at::Tensor& scalar) {
    std::vector<at::Tensor>& list = lists_[scalar.scalar_type()].scalars;
    list.push_back(scalar);
    return {scalar.scalar_type(), list.size() - 1};
  }

  /// Once everything is added.
  double operator[](Place place) {
    List& list = lists_.at(place.type);
    if (!list.numbers.defined()) list.numbers = at::stack(list.scalars).cpu().to(at::kDouble);
    return list.numbers.data_ptr<double>()[place.index];
  }

 private:
  // Of one type: one kernel puts them side by side.
  struct List {
    std::vector<at::Tensor> scalars = {};
    at::Tensor numbers = {};
  };
  std::map<at::ScalarType, List> lists_;
};

// To be asked when everything is measured.
using Verdict = std::function<bool()>;

Verdict known(bool verdict) {
  return [verdict] { return verdict; };
}

at::Tensor on(c10::Device device, const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  return tensor.to(tensor.options().device(device));
}

at::Tensor magnitudes(const at::Tensor& tensor) { return tensor.abs().nan_to_num_(); }

at::Tensor largest_magnitude(const at::Tensor& tensor) { return magnitudes(tensor).max(); }

at::Tensor mean_magnitude(const at::Tensor& tensor) { return magnitudes(tensor).mean(at::kDouble); }

at::Tensor is_nan_in_one(const at::Tensor& a, const at::Tensor& b) {
  return at::isnan(a).ne(at::isnan(b)).any();
}

at::Tensor change_from(const at::Tensor& start, const at::Tensor& value) {
  return start.defined() ? value - start : value;
}

bool have_difference(const at::Tensor& a, const at::Tensor& b) {
  return a.defined() && b.defined() && a.is_floating_point() && a.sizes() == b.sizes() &&
         a.scalar_type() == b.scalar_type();
}

double epsilon_of(at::ScalarType type) {
  return type == at::kDouble || type == at::kComplexDouble ? std::numeric_limits<double>::epsilon()
                                                           : std::numeric_limits<float>::epsilon();
}

// All on one device.
Verdict is_equal_as_measured(Scalars& scalars, const at::Tensor& expected, const at::Tensor& value,
                             const at::Tensor& start) {
  if (!expected.defined() || !value.defined()) return known(expected.defined() == value.defined());
  if (expected.sizes() != value.sizes() || expected.scalar_type() != value.scalar_type()) {
    return known(false);
  }
  if (expected.layout() != at::kStrided) {
    return is_equal_as_measured(scalars, expected.to_dense(), value.to_dense(), {});
  }
  const bool is_rounded = expected.is_floating_point() || expected.is_complex();
  // On a GPU this waits.
  if ((!is_rounded || value.is_cpu()) && at::equal(expected, value)) return known(true);
  if (!is_rounded || expected.numel() == 0) return known(is_rounded);
  const auto nan = scalars.add(is_nan_in_one(expected, value));
  const auto difference = scalars.add(largest_magnitude(expected - value));
  const auto scale = scalars.add(largest_magnitude(change_from(start, expected)));
  const auto largest = scalars.add(largest_magnitude(expected));
  const double epsilon = epsilon_of(expected.scalar_type());
  return [=, &scalars] {
    const double rounding = 4 * epsilon * scalars[largest];
    return scalars[nan] == 0 && scalars[difference] <= kTolerance * scalars[scale] + rounding;
  };
}

// On average, because single elements may differ at will. The program's own noise is no excuse
// unless the function's result is noise as well: memory that was never written is noise, too.
Verdict is_equal_within(Scalars& scalars, const at::Tensor& function_spread,
                        const at::Tensor& program_spread, double share, const at::Tensor& expected,
                        const at::Tensor& value, const at::Tensor& start) {
  const bool may_differ = share > 0 || function_spread.defined() || program_spread.defined();
  if (!may_differ || !have_difference(expected, value) || expected.numel() == 0) {
    return known(false);
  }
  const auto mean_of = [&scalars](const at::Tensor& spread) -> std::optional<Scalars::Place> {
    if (!spread.defined()) return std::nullopt;
    return scalars.add(mean_magnitude(spread));
  };
  const auto nan = scalars.add(is_nan_in_one(expected, value));
  const auto difference = scalars.add(mean_magnitude(expected - value));
  const auto scale = scalars.add(mean_magnitude(change_from(start, expected)));
  const std::optional<Scalars::Place> of_function = mean_of(function_spread);
  const std::optional<Scalars::Place> of_program = mean_of(program_spread);
  return [=, &scalars] {
    double noise = of_function ? scalars[*of_function] : 0;
    if (noise > kIllDefined * scalars[scale] && of_program) noise += scalars[*of_program];
    return scalars[nan] == 0 && scalars[difference] <= share * scalars[scale] + kTimesNoise * noise;
  };
}

at::Tensor find(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? at::Tensor() : found->second;
}

}  // namespace

bool is_equal(const at::Tensor& expected, const at::Tensor& value, const at::Tensor& start) {
  if (!value.defined()) return !expected.defined();
  Scalars scalars;
  const c10::Device device = value.device();
  return is_equal_as_measured(scalars, on(device, expected), value, on(device, start))();
}

bool have_same_bits(const at::Tensor& a, const at::Tensor& b) {
  const Unwatched unwatched;
  const auto plain = [](const at::Tensor& tensor) {
    const at::Tensor dense = tensor.layout() == at::kStrided ? tensor : tensor.to_dense();
    return dense.detach().cpu().resolve_conj().resolve_neg().contiguous();
  };
  const at::Tensor first = plain(a), second = plain(b);
  return first.nbytes() == second.nbytes() &&
         (first.nbytes() == 0 ||
          std::memcmp(first.data_ptr(), second.data_ptr(), first.nbytes()) == 0);
}

void widen(Outcome& spread, const Outcome& run, Outcome again, c10::Device device) {
  const Unwatched unwatched;
  const auto widen_each = [device](NamedTensors& spread, const NamedTensors& one,
                                   const NamedTensors& other) {
    for (const auto& [name, value] : one) {
      at::Tensor again = find(other, name);
      if (!have_difference(value, again)) continue;
      const at::Tensor difference = magnitudes(on(device, value) - on(device, again));
      at::Tensor& largest = spread[name];
      again.copy_(largest.defined() ? at::maximum(on(device, largest), difference) : difference);
      largest = again;
    }
  };
  widen_each(spread.outputs, run.outputs, again.outputs);
  widen_each(spread.variables, run.variables, again.variables);
}

std::string describe(const Difference& difference) {
  return (difference.is_variable ? "the variable '" : "the tensor '") + difference.name + "'";
}

namespace {

// What the two results, and what the variable was before, if it is one, are judged by.
using Judge = std::function<Verdict(Scalars&, const Difference& place, const at::Tensor& expected,
                                    const at::Tensor& value, const at::Tensor& start)>;

std::vector<Difference> find_differences(const Outcome& function, const Outcome& program,
                                         const NamedTensors& start, c10::Device device,
                                         const Judge& judge) {
  const Unwatched unwatched;  // thousands of small operators
  Scalars scalars;
  std::vector<std::pair<Difference, Verdict>> verdicts;
  const auto compare = [&](NamedTensors Outcome::*part, bool is_variable) {
    for (const auto& [name, value] : program.*part) {
      const Difference place{is_variable, name};
      const at::Tensor expected = on(device, find(function.*part, name));
      const at::Tensor from = is_variable ? on(device, find(start, name)) : at::Tensor();
      verdicts.emplace_back(place, judge(scalars, place, expected, on(device, value), from));
    }
  };
  compare(&Outcome::outputs, /*is_variable=*/false);
  compare(&Outcome::variables, /*is_variable=*/true);
  std::vector<Difference> found;
  for (const auto& [place, agrees] : verdicts) {
    if (!agrees()) found.push_back(place);
  }
  return found;
}

}  // namespace

std::vector<Difference> differences(const Outcome& function, const Outcome& program,
                                    const NamedTensors& start, c10::Device device) {
  return find_differences(function, program, start, device,
                          [](Scalars& scalars, const Difference&, const at::Tensor& expected,
                             const at::Tensor& value, const at::Tensor& start) {
                            return is_equal_as_measured(scalars, expected, value, start);
                          });
}

std::vector<Difference> beyond(const Noise& noise, const Outcome& function, const Outcome& program,
                               const NamedTensors& start, c10::Device device) {
  return find_differences(
      function, program, start, device,
      [&](Scalars& scalars, const Difference& place, const at::Tensor& expected,
          const at::Tensor& value, const at::Tensor& start) {
        const auto part = place.is_variable ? &Outcome::variables : &Outcome::outputs;
        return is_equal_within(scalars, on(device, find(noise.of_function.*part, place.name)),
                               on(device, find(noise.of_program.*part, place.name)), noise.share,
                               expected, value, start);
      });
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
