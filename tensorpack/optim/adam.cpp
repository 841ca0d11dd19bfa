// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/adam.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

Adam::Adam(AdamOptions options) : options_(std::move(options)) {
  TP_CHECK(options_.lr >= 0 && options_.epsilon >= 0 && options_.weight_decay >= 0, "Adam",
           "lr {}, epsilon {} and weight_decay {} must not be negative.", options_.lr,
           options_.epsilon, options_.weight_decay);
  TP_CHECK(options_.beta1 >= 0 && options_.beta1 < 1 && options_.beta2 >= 0 && options_.beta2 < 1,
           "Adam", "beta1 {} and beta2 {} must lie in [0, 1).", options_.beta1, options_.beta2);
}

void Adam::apply_gradients(const Gradients& gradients) {
  const at::Tensor lr = get_scalar_variable(name_in(options_.scope, "learning_rate"), options_.lr);
  // A double counts and exponentiates exactly enough for any number of steps.
  at::Tensor step = get_scalar_variable(name_in(options_.scope, "Adam/step"), 0, at::kDouble);
  step.add_(1);
  const at::Tensor correction1 = 1 - at::pow(options_.beta1, step);
  const at::Tensor correction2 = (1 - at::pow(options_.beta2, step)).sqrt();
  const at::Tensor step_size = lr.to(at::kDouble) / correction1;
  for (const Gradient& gradient : gradients) {
    const Variable& variable = *gradient.variable;
    at::Tensor value = gradient.value;
    if (options_.weight_decay != 0) value = value.add(variable.tensor, options_.weight_decay);
    at::Tensor m = get_slot(variable, "Adam_m");
    at::Tensor v = get_slot(variable, "Adam_v");
    m.mul_(options_.beta1).add_(value, 1 - options_.beta1);
    v.mul_(options_.beta2).addcmul_(value, value, 1 - options_.beta2);
    at::Tensor scale = v.sqrt().div_(correction2).add_(options_.epsilon);
    variable.tensor.sub_(m.div(scale).mul_(step_size));
  }
}

}  // namespace tensorpack
