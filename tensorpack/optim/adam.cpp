// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/adam.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/detail/check.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/optim/kernels.h"

namespace tensorpack {

Adam::Adam(AdamOptions options) : Adam(std::move(options), /*decoupled=*/false) {}

Adam::Adam(AdamOptions options, bool decoupled)
    : options_(std::move(options)), decoupled_(decoupled) {
  detail::check_not_negative("Adam", {{"lr", options_.lr},
                                      {"epsilon", options_.epsilon},
                                      {"weight_decay", options_.weight_decay}});
  detail::check_share("Adam", {{"beta1", options_.beta1}, {"beta2", options_.beta2}});
}

void Adam::update(const Gradients& gradients) {
  const at::Tensor lr = own_scalar(options_.scope, "learning_rate", options_.lr);
  // A double counts and exponentiates exactly enough for any number of steps.
  for (auto& [step, part] : counted(options_.scope, "Adam/step", gradients)) {
    step.add_(1);
    kernels::adam_(variables_of(part), get_slots(part, "Adam_m"), get_slots(part, "Adam_v"),
                   values_of(part), lr, step,
                   {.beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .epsilon = options_.epsilon,
                    .weight_decay = options_.weight_decay,
                    .decoupled = decoupled_});
  }
}

HyperParams Adam::hyper_params() const {
  return detail::hyper_params_of(decoupled_ ? "AdamW" : "Adam", options_.scope,
                                 {{"lr", fmt::to_string(options_.lr)},
                                  {"beta1", fmt::to_string(options_.beta1)},
                                  {"beta2", fmt::to_string(options_.beta2)},
                                  {"epsilon", fmt::to_string(options_.epsilon)},
                                  {"weight_decay", fmt::to_string(options_.weight_decay)}});
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
