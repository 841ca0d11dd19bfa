// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/update_kernels.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <map>
#include <vector>

namespace tensorpack::cuda {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;

// Variables of one type with what belongs to them: libtorch's fused kernels want nothing else.
struct Group {
  Tensors variables = {};
  Tensors gradients = {};
  Tensors slots1 = {};
  Tensors slots2 = {};
};

// As the variable is laid out.
Tensor laid_out_like(const Tensor& variable, const Tensor& gradient) {
  const bool fits =
      gradient.scalar_type() == variable.scalar_type() && gradient.strides() == variable.strides();
  return fits ? gradient : at::empty_like(variable).copy_(gradient);
}

std::map<at::ScalarType, Group> group_by_type(TensorList variables, TensorList gradients,
                                              TensorList slots1, TensorList slots2) {
  std::map<at::ScalarType, Group> groups;
  for (size_t i = 0; i < variables.size(); ++i) {
    Group& group = groups[variables[i].scalar_type()];
    group.variables.push_back(variables[i]);
    group.gradients.push_back(laid_out_like(variables[i], gradients[i]));
    if (!slots1.empty()) group.slots1.push_back(slots1[i]);
    if (!slots2.empty()) group.slots2.push_back(slots2[i]);
  }
  return groups;
}

void sgd(TensorList variables, TensorList velocities, TensorList gradients, const Tensor& lr,
         double momentum, bool nesterov, double weight_decay) {
  for (auto& [type, group] : group_by_type(variables, gradients, velocities, {})) {
    at::_fused_sgd_(group.variables, group.gradients, group.slots1, weight_decay, momentum,
                    lr.to(at::kFloat), /*dampening=*/0, nesterov, /*maximize=*/false,
                    /*is_first_step=*/false);
  }
}

void adam(TensorList variables, TensorList m, TensorList v, TensorList gradients, const Tensor& lr,
          const Tensor& step, double beta1, double beta2, double epsilon, double weight_decay,
          bool decoupled) {
  const Tensor rate = lr.to(at::kFloat);
  const Tensor count = step.to(at::kFloat);
  for (auto& [type, group] : group_by_type(variables, gradients, m, v)) {
    const Tensors counts(group.variables.size(), count);
    const auto update = [&](auto fused) {
      fused(group.variables, group.gradients, group.slots1, group.slots2, TensorList(), counts,
            rate, beta1, beta2, weight_decay, epsilon, /*amsgrad=*/false, /*maximize=*/false,
            std::optional<Tensor>(), std::optional<Tensor>());
    };
    if (decoupled) {
      update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  }
}

}  // namespace

void link_update_kernels() {}

TORCH_LIBRARY_IMPL(tensorpack, CUDA, library) {
  library.impl("sgd_", sgd);
  library.impl("adam_", adam);
}

}  // namespace tensorpack::cuda
