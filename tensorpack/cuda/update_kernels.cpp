// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cuda/update_kernels.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <map>
#include <vector>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/kernel_list.h"
#include "tensorpack/cuda/kernels/prelude.h"
#include "tensorpack/cuda/kernels/update.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack::cuda {
namespace {

using at::Tensor;
using at::TensorList;
using Tensors = std::vector<Tensor>;

// Variables of one type with what belongs to them: libtorch's fused kernels want nothing else.
struct Group {
  Tensors variables = {};
  Tensors gradients = {};
  std::vector<Tensors> slots = {};  // a list that the optimizer does not use is empty
};

std::map<at::ScalarType, Group> group_by_type(TensorList variables, TensorList gradients,
                                              const std::vector<TensorList>& slots) {
  std::map<at::ScalarType, Group> groups;
  for (size_t i = 0; i < variables.size(); ++i) {
    Group& group = groups[variables[i].scalar_type()];
    group.variables.push_back(variables[i]);
    group.gradients.push_back(laid_out_like(variables[i], gradients[i]));
    group.slots.resize(slots.size());
    for (size_t k = 0; k < slots.size(); ++k) {
      if (!slots[k].empty()) group.slots[k].push_back(slots[k][i]);
    }
  }
  return groups;
}

UpdateTensors update_tensors(TensorList variables, TensorList gradients,
                             const std::vector<TensorList>& slots,
                             const CopiesOfVariables& copies) {
  UpdateTensors tensors{.variables = variables.vec(), .copies = copies.of_each(variables.size())};
  for (size_t i = 0; i < variables.size(); ++i) {
    const bool fits = gradients[i].strides() == variables[i].strides() &&
                      has_kernel_type(gradients[i].scalar_type());
    tensors.gradients.push_back(fits ? gradients[i] : laid_out_like(variables[i], gradients[i]));
  }
  for (const TensorList& slot : slots) tensors.slots.push_back(slot.vec());
  return tensors;
}

// By a kernel of ours; false if there is none here.
template <typename Update>
bool try_ours(const UpdateTensors& tensors, const Tensor& lr, Update update) {
  const Launcher* launcher = fits_update(tensors, lr) ? launcher_for(lr) : nullptr;
  if (launcher == nullptr) return false;
  try {
    update(*launcher);
    return true;
  } catch (const Error& error) {
    logging::warning_once("libtorch's updates are used: {}", error.what());
    return false;
  }
}

// The gradients with the decay of the weights added to them.
Tensors decayed(const Group& group, double weight_decay) {
  if (weight_decay == 0) return group.gradients;
  return at::_foreach_add(group.gradients, group.variables, weight_decay);
}

// average = keep * average + (1 - keep) * values
void update_average(const Tensors& average, const Tensors& values, double keep) {
  at::_foreach_mul_(average, keep);
  at::_foreach_add_(average, values, 1 - keep);
}

void update_average_of_squares(const Tensors& average, const Tensors& values, double keep) {
  at::_foreach_mul_(average, keep);
  at::_foreach_addcmul_(average, values, values, 1 - keep);
}

void descend(const Tensors& variables, const Tensors& steps, const Tensor& lr) {
  at::_foreach_sub_(variables, at::_foreach_mul(steps, lr.to(variables[0].scalar_type())));
}

void update_by_sgd(TensorList variables, TensorList velocities, TensorList gradients,
                   const Tensor& lr, const SgdUpdate& options, const CopiesOfVariables& copies) {
  const UpdateTensors tensors = update_tensors(variables, gradients, {velocities}, copies);
  if (try_ours(tensors, lr,
               [&](const Launcher& launcher) { sgd_update(tensors, lr, options, launcher); })) {
    return;
  }
  for (auto& [type, group] : group_by_type(variables, gradients, {velocities})) {
    at::_fused_sgd_(group.variables, group.gradients, group.slots[0], options.weight_decay,
                    options.momentum, lr.to(at::kFloat), /*dampening=*/0, options.nesterov,
                    /*maximize=*/false, /*is_first_step=*/false);
  }
  copies.write(variables);
}

void sgd(TensorList variables, TensorList velocities, TensorList gradients, const Tensor& lr,
         double momentum, bool nesterov, double weight_decay) {
  update_by_sgd(variables, velocities, gradients, lr, {momentum, nesterov, weight_decay}, {});
}

void sgd_and_copies(TensorList variables, TensorList velocities, TensorList gradients,
                    const Tensor& lr, double momentum, bool nesterov, double weight_decay,
                    TensorList copies, at::IntArrayRef places) {
  update_by_sgd(variables, velocities, gradients, lr, {momentum, nesterov, weight_decay},
                {copies, places});
}

void update_by_adam(TensorList variables, TensorList m, TensorList v, TensorList gradients,
                    const Tensor& lr, const Tensor& step, const AdamUpdate& options,
                    const CopiesOfVariables& copies) {
  const UpdateTensors tensors = update_tensors(variables, gradients, {m, v}, copies);
  if (try_ours(tensors, lr, [&](const Launcher& launcher) {
        adam_update(tensors, lr, step, options, launcher);
      })) {
    return;
  }
  const Tensor rate = lr.to(at::kFloat);
  const Tensor count = step.to(at::kFloat);
  for (auto& [type, group] : group_by_type(variables, gradients, {m, v})) {
    const Tensors counts(group.variables.size(), count);
    const auto update = [&](auto fused) {
      fused(group.variables, group.gradients, group.slots[0], group.slots[1], TensorList(), counts,
            rate, options.beta1, options.beta2, options.weight_decay, options.epsilon,
            /*amsgrad=*/false, /*maximize=*/false, std::optional<Tensor>(),
            std::optional<Tensor>());
    };
    if (options.decoupled) {
      update([](auto&&... arguments) { at::_fused_adamw_(arguments...); });
    } else {
      update([](auto&&... arguments) { at::_fused_adam_(arguments...); });
    }
  }
  copies.write(variables);
}

void adam(TensorList variables, TensorList m, TensorList v, TensorList gradients, const Tensor& lr,
          const Tensor& step, double beta1, double beta2, double epsilon, double weight_decay,
          bool decoupled) {
  update_by_adam(variables, m, v, gradients, lr, step,
                 {beta1, beta2, epsilon, weight_decay, decoupled}, {});
}

void adam_and_copies(TensorList variables, TensorList m, TensorList v, TensorList gradients,
                     const Tensor& lr, const Tensor& step, double beta1, double beta2,
                     double epsilon, double weight_decay, bool decoupled, TensorList copies,
                     at::IntArrayRef places) {
  update_by_adam(variables, m, v, gradients, lr, step,
                 {beta1, beta2, epsilon, weight_decay, decoupled}, {copies, places});
}

void rmsprop(TensorList variables, TensorList squares, TensorList means, TensorList velocities,
             TensorList gradients, const Tensor& lr, double alpha, double epsilon, double momentum,
             double weight_decay) {
  for (auto& [type, group] : group_by_type(variables, gradients, {squares, means, velocities})) {
    const Tensors gradient = decayed(group, weight_decay);
    const Tensors& square = group.slots[0];
    const Tensors& mean = group.slots[1];
    const Tensors& velocity = group.slots[2];
    update_average_of_squares(square, gradient, alpha);
    Tensors scale;
    if (mean.empty()) {
      scale = at::_foreach_sqrt(square);
    } else {
      update_average(mean, gradient, alpha);
      scale = at::_foreach_addcmul(square, mean, mean, -1);
      at::_foreach_sqrt_(scale);
    }
    at::_foreach_add_(scale, epsilon);
    Tensors step = at::_foreach_div(gradient, scale);
    if (!velocity.empty()) {
      at::_foreach_mul_(velocity, momentum);
      at::_foreach_add_(velocity, step);
      step = velocity;
    }
    descend(group.variables, step, lr);
  }
}

void adagrad(TensorList variables, TensorList sums, TensorList gradients, const Tensor& lr,
             double epsilon, double weight_decay) {
  for (auto& [type, group] : group_by_type(variables, gradients, {sums})) {
    const Tensors gradient = decayed(group, weight_decay);
    at::_foreach_addcmul_(group.slots[0], gradient, gradient);
    const Tensors scale = at::_foreach_sqrt(group.slots[0]);
    at::_foreach_add_(scale, epsilon);
    descend(group.variables, at::_foreach_div(gradient, scale), lr);
  }
}

void lamb(TensorList variables, TensorList m, TensorList v, TensorList gradients, const Tensor& lr,
          const Tensor& step, double beta1, double beta2, double epsilon, double weight_decay) {
  for (auto& [type, group] : group_by_type(variables, gradients, {m, v})) {
    const Tensor correction1 = (1 - at::pow(beta1, step)).to(type);
    const Tensor correction2 = (1 - at::pow(beta2, step)).sqrt().to(type);
    update_average(group.slots[0], group.gradients, beta1);
    update_average_of_squares(group.slots[1], group.gradients, beta2);
    const Tensors scale = at::_foreach_sqrt(group.slots[1]);
    at::_foreach_div_(scale, correction2);
    at::_foreach_add_(scale, epsilon);
    const Tensors update = at::_foreach_div(group.slots[0], scale);
    at::_foreach_div_(update, correction1);
    if (weight_decay != 0) at::_foreach_add_(update, group.variables, weight_decay);
    const Tensor weight_norms = at::stack(at::_foreach_norm(group.variables));
    const Tensor update_norms = at::stack(at::_foreach_norm(update));
    const Tensor trust = at::where((weight_norms > 0).logical_and(update_norms > 0),
                                   weight_norms / update_norms, at::ones_like(weight_norms));
    at::_foreach_mul_(update, trust.unbind());
    descend(group.variables, update, lr);
  }
}

}  // namespace

void link_update_kernels() {}

TORCH_LIBRARY_IMPL(tensorpack, CUDA, library) {
  library.impl("sgd_", sgd);
  library.impl("sgd_and_copies_", sgd_and_copies);
  library.impl("adam_", adam);
  library.impl("adam_and_copies_", adam_and_copies);
  library.impl("rmsprop_", rmsprop);
  library.impl("adagrad_", adagrad);
  library.impl("lamb_", lamb);
}

}  // namespace tensorpack::cuda
