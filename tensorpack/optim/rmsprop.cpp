// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/rmsprop.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

RMSProp::RMSProp(RMSPropOptions options) : options_(std::move(options)) {
  TP_CHECK(options_.lr >= 0 && options_.epsilon >= 0 && options_.momentum >= 0 &&
               options_.weight_decay >= 0,
           "RMSProp", "lr {}, epsilon {}, momentum {} and weight_decay {} must not be negative.",
           options_.lr, options_.epsilon, options_.momentum, options_.weight_decay);
  TP_CHECK(options_.alpha >= 0 && options_.alpha < 1, "RMSProp", "alpha {} must lie in [0, 1).",
           options_.alpha);
}

void RMSProp::apply_gradients(const Gradients& gradients) {
  const at::Tensor lr = get_scalar_variable(name_in(options_.scope, "learning_rate"), options_.lr);
  for (const Gradient& gradient : gradients) {
    const Variable& variable = *gradient.variable;
    at::Tensor value = gradient.value;
    if (options_.weight_decay != 0) value = value.add(variable.tensor, options_.weight_decay);
    at::Tensor square = get_slot(variable, "RMSProp");
    square.mul_(options_.alpha).addcmul_(value, value, 1 - options_.alpha);
    at::Tensor scale = square;
    if (options_.centered) {
      at::Tensor mean = get_slot(variable, "RMSProp_mean");
      mean.mul_(options_.alpha).add_(value, 1 - options_.alpha);
      scale = square.addcmul(mean, mean, -1);
    }
    at::Tensor step = value / scale.sqrt().add_(options_.epsilon);
    if (options_.momentum != 0) {
      step = get_slot(variable, "RMSProp_momentum").mul_(options_.momentum).add_(step);
    }
    variable.tensor.addcmul_(step, lr, -1);
  }
}

}  // namespace tensorpack
