// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/graph/tensor_spec.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

constexpr int64_t kTrialBatch = 2;  // batch norm in training mode needs more than one value
constexpr int64_t kTrialExtent = 64;

bool fits(const Shape& shape, at::IntArrayRef sizes) {
  if (shape.size() != sizes.size()) return false;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1 && shape[i] != sizes[i]) return false;
  }
  return true;
}

}  // namespace

DefaultValue::DefaultValue(double number)
    : function_([number](const Shape& shape) { return at::full(shape, number, at::kDouble); }) {}

at::Tensor DefaultValue::operator()(const Shape& shape, c10::ScalarType dtype) const {
  const at::Tensor value = function_(shape);
  TP_CHECK(value.defined(), "default_value",
           "the function returned an undefined tensor. Return one of shape [{}].",
           fmt::join(shape, ", "));
  return value.to(dtype);
}

void TensorSpec::check(const at::Tensor& value) const {
  TP_CHECK(value.defined(), "input", "'{}' was given an undefined tensor. Feed {}.", name,
           to_string());
  TP_CHECK(fits(shape, value.sizes()), "input",
           "'{}' must have shape [{}], got [{}]. Make the data match the input signature.", name,
           fmt::join(shape, ", "), fmt::join(value.sizes(), ", "));
  TP_CHECK(value.scalar_type() == dtype, "input",
           "'{}' must be of type {}, got {}. Convert the data, or change the dtype in the input "
           "signature.",
           name, c10::toString(dtype), c10::toString(value.scalar_type()));
}

at::Tensor TensorSpec::trial_value(c10::Device device) const {
  Shape extents = trial_shape.empty() ? shape : trial_shape;
  TP_CHECK(extents.size() == shape.size(), "TensorSpec",
           "trial_shape of '{}' has {}, its shape has {}. Give both the same rank.", name,
           counted(std::ssize(extents), "dimension"), shape.size());
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == -1) extents[i] = i == 0 ? kTrialBatch : kTrialExtent;
  }
  return at::zeros(extents, at::TensorOptions(dtype).device(device));
}

std::string TensorSpec::to_string() const {
  return fmt::format("{}: {} [{}]", name, c10::toString(dtype), fmt::join(shape, ", "));
}

void check_signature(const std::vector<TensorSpec>& inputs) {
  std::set<std::string> seen;
  for (const TensorSpec& spec : inputs) {
    TP_CHECK(!spec.name.empty(), "input signature",
             "input number {} has no name. Write {{\"image\", {{-1, 28, 28}}}}.", seen.size());
    TP_CHECK(spec.name.find_first_of(":/ ") == std::string::npos, "input signature",
             "the input name '{}' contains ':', '/' or a space. Use letters, digits and '_'.",
             spec.name);
    TP_CHECK(seen.insert(spec.name).second, "input signature",
             "two inputs are called '{}'. Give each a name of its own.", spec.name);
    for (int64_t extent : spec.shape) {
      TP_CHECK(extent >= -1, "input signature",
               "input '{}' has a dimension of {}. Use -1 for one that may vary.", spec.name,
               extent);
    }
  }
}

}  // namespace tensorpack
