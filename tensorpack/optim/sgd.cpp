// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/optim/sgd.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/optim/detail/check.h"
#include "tensorpack/optim/detail/hyper_params.h"
#include "tensorpack/optim/kernels.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

SGD::SGD(SGDOptions options) : options_(std::move(options)) {
  detail::check_not_negative("SGD", {{"lr", options_.lr},
                                     {"momentum", options_.momentum},
                                     {"weight_decay", options_.weight_decay}});
  TP_CHECK(!options_.nesterov || options_.momentum > 0, "SGD",
           "nesterov needs a momentum above 0. Set .momentum = 0.9.");
}

void SGD::update(const Gradients& gradients) {
  const at::Tensor lr = own_scalar(options_.scope, "learning_rate", options_.lr);
  std::vector<at::Tensor> velocities;
  if (options_.momentum != 0) velocities = get_slots(gradients, "Momentum");
  kernels::sgd_(variables_of(gradients), velocities, values_of(gradients), lr,
                {.momentum = options_.momentum,
                 .nesterov = options_.nesterov,
                 .weight_decay = options_.weight_decay});
}

HyperParams SGD::hyper_params() const {
  return detail::hyper_params_of("SGD", options_.scope,
                                 {{"lr", fmt::to_string(options_.lr)},
                                  {"momentum", fmt::to_string(options_.momentum)},
                                  {"nesterov", fmt::to_string(options_.nesterov)},
                                  {"weight_decay", fmt::to_string(options_.weight_decay)}});
}

SGD Momentum(double lr, double momentum) { return SGD({.lr = lr, .momentum = momentum}); }

}  // namespace tensorpack
