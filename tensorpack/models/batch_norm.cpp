// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/batch_norm.h"

#include <ATen/ATen.h>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions call_options) {
  return run_layer("BatchNorm", name, input, [&] {
    const BatchNormOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("BatchNorm");
    detail::check_rank("BatchNorm", input, {2, 4}, "[N, C] or [N, C, H, W]");
    const double momentum = options.momentum.value_or(0.9);
    TP_CHECK(momentum >= 0 && momentum <= 1, where,
             "the momentum is {}. It is the share of the old average that is kept, in [0, 1].",
             momentum);
    const Shape shape{input.size(1)};
    at::Tensor beta, gamma;
    if (options.center.value_or(true)) beta = get_variable("beta", shape, init::zeros());
    if (options.scale.value_or(true)) {
      gamma = get_variable("gamma", shape, options.gamma_init.value_or(init::ones()));
    }
    at::Tensor mean = get_variable("mean/EMA", shape, {.role = VariableRole::kModel});
    at::Tensor variance =
        get_variable("variance/EMA", shape, {.init = init::ones(), .role = VariableRole::kModel});
    const bool use_batch_statistics = options.training.value_or(is_training());
    if (is_training() && !use_batch_statistics) {
      log::warning_once("[{}] uses the moving statistics in training: it is frozen.", where);
    }
    const TowerContext* tower = TowerContext::current();
    const bool keeps_statistics = (tower == nullptr || tower->is_main_training_tower()) &&
                                  options.ema_update != EmaUpdate::kSkip;
    if (use_batch_statistics && !keeps_statistics) mean = variance = at::Tensor();
    return detail::activate(
        at::batch_norm(input, gamma, beta, mean, variance, use_batch_statistics, 1 - momentum,
                       options.epsilon.value_or(1e-5), at::globalContext().userEnabledCuDNN()),
        options.activation);
  });
}

at::Tensor BNReLU(const std::string& name, const at::Tensor& input) {
  return run_layer("BNReLU", name, input, [&] { return at::relu(BatchNorm("bn", input)); });
}

}  // namespace tensorpack
