// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/sgd.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

SGD::SGD(SGDOptions options) : options_(std::move(options)) {
  TP_CHECK(options_.lr >= 0 && options_.momentum >= 0 && options_.weight_decay >= 0, "SGD",
           "lr {}, momentum {} and weight_decay {} must not be negative.", options_.lr,
           options_.momentum, options_.weight_decay);
  TP_CHECK(!options_.nesterov || options_.momentum > 0, "SGD",
           "nesterov needs a momentum above 0. Set .momentum = 0.9.");
}

void SGD::apply_gradients(const Gradients& gradients) {
  const at::Tensor lr = get_scalar_variable(name_in(options_.scope, "learning_rate"), options_.lr);
  std::vector<at::Tensor> variables, velocities, values;
  for (const Gradient& gradient : gradients) {
    variables.push_back(gradient.variable->tensor);
    values.push_back(gradient.value);
    if (options_.momentum != 0) velocities.push_back(get_slot(*gradient.variable, "Momentum"));
  }
  kernels::sgd_(variables, velocities, values, lr,
                {.momentum = options_.momentum,
                 .nesterov = options_.nesterov,
                 .weight_decay = options_.weight_decay});
}

SGD Momentum(double lr, double momentum) { return SGD({.lr = lr, .momentum = momentum}); }

}  // namespace tensorpack
