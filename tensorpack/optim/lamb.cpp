// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/lamb.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/detail/check.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/optim/kernels.h"

namespace tensorpack {

LAMB::LAMB(LAMBOptions options) : options_(std::move(options)) {
  detail::check_not_negative("LAMB", {{"lr", options_.lr},
                                      {"epsilon", options_.epsilon},
                                      {"weight_decay", options_.weight_decay}});
  detail::check_share("LAMB", {{"beta1", options_.beta1}, {"beta2", options_.beta2}});
}

void LAMB::update(const Gradients& gradients) {
  const at::Tensor lr = own_scalar(options_.scope, "learning_rate", options_.lr);
  for (auto& [step, part] : counted(options_.scope, "LAMB/step", gradients)) {
    step.add_(1);
    kernels::lamb_(variables_of(part), get_slots(part, "LAMB_m"), get_slots(part, "LAMB_v"),
                   values_of(part), lr, step,
                   {.beta1 = options_.beta1,
                    .beta2 = options_.beta2,
                    .epsilon = options_.epsilon,
                    .weight_decay = options_.weight_decay});
  }
}

HyperParams LAMB::hyper_params() const {
  return detail::hyper_params_of("LAMB", options_.scope,
                                 {{"lr", fmt::to_string(options_.lr)},
                                  {"beta1", fmt::to_string(options_.beta1)},
                                  {"beta2", fmt::to_string(options_.beta2)},
                                  {"epsilon", fmt::to_string(options_.epsilon)},
                                  {"weight_decay", fmt::to_string(options_.weight_decay)}});
}

}  // namespace tensorpack
