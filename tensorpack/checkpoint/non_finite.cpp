// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/non_finite.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tensorpack {
namespace {

// Those that can be added up on every device.
bool is_plain_float(const at::Tensor& tensor) {
  constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  return tensor.defined() && tensor.layout() == at::kStrided &&
         std::find(kTypes.begin(), kTypes.end(), tensor.scalar_type()) != kTypes.end();
}

// A sum is finite only if all numbers are, and reads the memory once, without another tensor as
// large. That of finite numbers may overflow: then each is looked at.
bool is_finite(const at::Tensor& tensor) {
  const bool is_double = tensor.scalar_type() == at::kDouble;
  const at::Tensor sum = tensor.sum(is_double ? at::kDouble : at::kFloat);
  return std::isfinite(sum.item<double>()) || tensor.isfinite().all().item<bool>();
}

}  // namespace

std::vector<std::string> find_non_finite(const NamedTensors& tensors) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors) {
    if (is_plain_float(tensor) && !is_finite(tensor)) names.push_back(name);
  }
  return names;
}

}  // namespace tensorpack
