// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/adagrad.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

Adagrad::Adagrad(AdagradOptions options) : options_(std::move(options)) {
  TP_CHECK(options_.lr >= 0 && options_.lr_decay >= 0 && options_.epsilon >= 0 &&
               options_.weight_decay >= 0 && options_.initial_accumulator >= 0,
           "Adagrad",
           "lr {}, lr_decay {}, epsilon {}, weight_decay {} and initial_accumulator {} must not be "
           "negative.",
           options_.lr, options_.lr_decay, options_.epsilon, options_.weight_decay,
           options_.initial_accumulator);
}

void Adagrad::apply_gradients(const Gradients& gradients) {
  at::Tensor lr = get_scalar_variable(name_in(options_.scope, "learning_rate"), options_.lr);
  if (options_.lr_decay != 0) {
    at::Tensor step = get_scalar_variable(name_in(options_.scope, "Adagrad/step"), 0, at::kDouble);
    lr = lr / (1 + step * options_.lr_decay);
    step.add_(1);
  }
  for (const Gradient& gradient : gradients) {
    const Variable& variable = *gradient.variable;
    at::Tensor value = gradient.value;
    if (options_.weight_decay != 0) value = value.add(variable.tensor, options_.weight_decay);
    at::Tensor sum = get_slot(variable, "Adagrad", init::constant(options_.initial_accumulator));
    sum.addcmul_(value, value);
    const at::Tensor step = value / sum.sqrt().add_(options_.epsilon);
    variable.tensor.sub_(step.mul_(lr));
  }
}

}  // namespace tensorpack
