// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/rmsprop.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/detail/check.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/optim/kernels.h"

namespace tensorpack {

RMSProp::RMSProp(RMSPropOptions options) : options_(std::move(options)) {
  detail::check_not_negative("RMSProp", {{"lr", options_.lr},
                                         {"epsilon", options_.epsilon},
                                         {"momentum", options_.momentum},
                                         {"weight_decay", options_.weight_decay}});
  detail::check_share("RMSProp", {{"alpha", options_.alpha}});
}

void RMSProp::update(const Gradients& gradients) {
  const at::Tensor lr = own_scalar(options_.scope, "learning_rate", options_.lr);
  std::vector<at::Tensor> means, velocities;
  if (options_.centered) means = get_slots(gradients, "RMSProp_mean");
  if (options_.momentum != 0) velocities = get_slots(gradients, "RMSProp_momentum");
  kernels::rmsprop_(variables_of(gradients), get_slots(gradients, "RMSProp"), means, velocities,
                    values_of(gradients), lr,
                    {.alpha = options_.alpha,
                     .epsilon = options_.epsilon,
                     .momentum = options_.momentum,
                     .weight_decay = options_.weight_decay});
}

HyperParams RMSProp::hyper_params() const {
  return detail::hyper_params_of("RMSProp", options_.scope,
                                 {{"lr", fmt::to_string(options_.lr)},
                                  {"alpha", fmt::to_string(options_.alpha)},
                                  {"epsilon", fmt::to_string(options_.epsilon)},
                                  {"momentum", fmt::to_string(options_.momentum)},
                                  {"centered", fmt::to_string(options_.centered)},
                                  {"weight_decay", fmt::to_string(options_.weight_decay)}});
}

}  // namespace tensorpack
