// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/adam.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

Adam::Adam(AdamOptions options) : Adam(std::move(options), /*decoupled=*/false) {}

Adam::Adam(AdamOptions options, bool decoupled)
    : options_(std::move(options)), decoupled_(decoupled) {
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
  std::vector<at::Tensor> variables, m, v, values;
  for (const Gradient& gradient : gradients) {
    variables.push_back(gradient.variable->tensor);
    m.push_back(get_slot(*gradient.variable, "Adam_m"));
    v.push_back(get_slot(*gradient.variable, "Adam_v"));
    values.push_back(gradient.value);
  }
  kernels::adam_(variables, m, v, values, lr, step,
                 {.beta1 = options_.beta1,
                  .beta2 = options_.beta2,
                  .epsilon = options_.epsilon,
                  .weight_decay = options_.weight_decay,
                  .decoupled = decoupled_});
}

AdamW::AdamW(AdamWOptions options)
    : Adam({.lr = options.lr,
            .beta1 = options.beta1,
            .beta2 = options.beta2,
            .epsilon = options.epsilon,
            .weight_decay = options.weight_decay,
            .scope = std::move(options.scope)},
           /*decoupled=*/true) {}

}  // namespace tensorpack
