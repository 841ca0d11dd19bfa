// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/adagrad.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/detail/check.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/optim/kernels.h"

namespace tensorpack {

Adagrad::Adagrad(AdagradOptions options) : options_(std::move(options)) {
  detail::check_not_negative("Adagrad", {{"lr", options_.lr},
                                         {"lr_decay", options_.lr_decay},
                                         {"epsilon", options_.epsilon},
                                         {"weight_decay", options_.weight_decay},
                                         {"initial_accumulator", options_.initial_accumulator}});
}

void Adagrad::update(const Gradients& gradients) {
  const at::Tensor lr = own_scalar(options_.scope, "learning_rate", options_.lr);
  if (options_.lr_decay == 0) return update_at(lr, gradients);
  for (auto& [step, part] : counted(options_.scope, "Adagrad/step", gradients)) {
    const at::Tensor decayed = lr / (1 + step * options_.lr_decay);
    step.add_(1);
    update_at(decayed, part);
  }
}

void Adagrad::update_at(const at::Tensor& lr, const Gradients& gradients) const {
  const auto sums = get_slots(gradients, "Adagrad", init::constant(options_.initial_accumulator));
  kernels::adagrad_(variables_of(gradients), sums, values_of(gradients), lr,
                    {.epsilon = options_.epsilon, .weight_decay = options_.weight_decay});
}

HyperParams Adagrad::hyper_params() const {
  return detail::hyper_params_of(
      "Adagrad", options_.scope,
      {{"lr", fmt::to_string(options_.lr)},
       {"lr_decay", fmt::to_string(options_.lr_decay)},
       {"epsilon", fmt::to_string(options_.epsilon)},
       {"weight_decay", fmt::to_string(options_.weight_decay)},
       {"initial_accumulator", fmt::to_string(options_.initial_accumulator)}});
}

}  // namespace tensorpack
