// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/batch_norm.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions call_options) {
  return run_layer("BatchNorm", name, input, [&] {
    const BatchNormOptions options = with_arg_scope(std::move(call_options));
    TP_CHECK(input.dim() == 2 || input.dim() == 4,
             "BatchNorm '" + VariableScope::current_path() + "'",
             "the input must be [N, C] or [N, C, H, W], got [{}]. Reshape it first.",
             fmt::join(input.sizes(), ", "));
    const Shape shape{input.size(1)};
    at::Tensor beta, gamma;
    if (options.center.value_or(true)) beta = get_variable("beta", shape, init::zeros());
    if (options.scale.value_or(true)) gamma = get_variable("gamma", shape, init::ones());
    at::Tensor mean = get_variable("mean/EMA", shape, {.role = VariableRole::kModel});
    at::Tensor variance =
        get_variable("variance/EMA", shape, {.init = init::ones(), .role = VariableRole::kModel});
    const bool use_batch_statistics = options.training.value_or(is_training());
    const TowerContext* tower = TowerContext::current();
    const bool keeps_statistics = tower == nullptr || tower->is_main_training_tower();
    if (use_batch_statistics && !keeps_statistics) mean = variance = at::Tensor();
    at::Tensor output =
        at::batch_norm(input, gamma, beta, mean, variance, use_batch_statistics,
                       1 - options.momentum.value_or(0.9), options.epsilon.value_or(1e-5),
                       at::globalContext().userEnabledCuDNN());
    return options.activation && *options.activation ? (*options.activation)(output) : output;
  });
}

at::Tensor BNReLU(const std::string& name, const at::Tensor& input) {
  return run_layer("BNReLU", name, input, [&] { return at::relu(BatchNorm("bn", input)); });
}

}  // namespace tensorpack
