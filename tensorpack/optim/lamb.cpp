// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/lamb.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

LAMB::LAMB(LAMBOptions options) : options_(std::move(options)) {
  TP_CHECK(options_.lr >= 0 && options_.epsilon >= 0 && options_.weight_decay >= 0, "LAMB",
           "lr {}, epsilon {} and weight_decay {} must not be negative.", options_.lr,
           options_.epsilon, options_.weight_decay);
  TP_CHECK(options_.beta1 >= 0 && options_.beta1 < 1 && options_.beta2 >= 0 && options_.beta2 < 1,
           "LAMB", "beta1 {} and beta2 {} must lie in [0, 1).", options_.beta1, options_.beta2);
}

void LAMB::apply_gradients(const Gradients& gradients) {
  const at::Tensor lr = get_scalar_variable(name_in(options_.scope, "learning_rate"), options_.lr);
  at::Tensor step = get_scalar_variable(name_in(options_.scope, "LAMB/step"), 0, at::kDouble);
  step.add_(1);
  const at::Tensor correction1 = 1 - at::pow(options_.beta1, step);
  const at::Tensor correction2 = (1 - at::pow(options_.beta2, step)).sqrt();
  for (const Gradient& gradient : gradients) {
    const Variable& variable = *gradient.variable;
    const at::Tensor& value = gradient.value;
    at::Tensor m = get_slot(variable, "LAMB_m");
    at::Tensor v = get_slot(variable, "LAMB_v");
    m.mul_(options_.beta1).add_(value, 1 - options_.beta1);
    v.mul_(options_.beta2).addcmul_(value, value, 1 - options_.beta2);
    at::Tensor update = (m / correction1).div_((v.sqrt() / correction2).add_(options_.epsilon));
    if (options_.weight_decay != 0) update.add_(variable.tensor, options_.weight_decay);
    const at::Tensor weight_norm = variable.tensor.norm();
    const at::Tensor update_norm = update.norm();
    const at::Tensor trust = at::where((weight_norm > 0).logical_and(update_norm > 0),
                                       weight_norm / update_norm, at::ones_like(weight_norm));
    variable.tensor.sub_(update.mul_(trust * lr));
  }
}

}  // namespace tensorpack
