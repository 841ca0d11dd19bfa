// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/batch_norm.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/tower/tower_context.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

struct Normalization {
  double momentum = 0.9;
  double epsilon = 1e-5;
  // Undefined if they are not learned.
  at::Tensor beta = {};
  at::Tensor gamma = {};
  // The moving statistics; undefined if they are to stay as they are.
  at::Tensor mean = {};
  at::Tensor variance = {};
};

at::Tensor normalize(const at::Tensor& x, const Normalization& n, bool use_batch_statistics) {
  return at::batch_norm(x, n.gamma, n.beta, n.mean, n.variance, use_batch_statistics,
                        1 - n.momentum, n.epsilon, at::globalContext().userEnabledCuDNN());
}

at::Tensor normalize_in_parts(const at::Tensor& x, Normalization n, int64_t size) {
  TP_CHECK(size > 0 && (x.size(0) <= size || x.size(0) % size == 0),
           detail::layer_place("BatchNorm"),
           "a batch of {} cannot be split by a virtual_batch_size of {}. Make the batch a multiple "
           "of it.",
           x.size(0), size);
  std::vector<at::Tensor> parts = x.split(size);
  for (at::Tensor& part : parts) {
    part = normalize(part, n, /*use_batch_statistics=*/true);
    n.mean = n.variance = at::Tensor();  // they follow the first part alone
  }
  return at::cat(parts);
}

// libtorch's kernel takes no statistics that gradients flow through, so this is spelt out. Squares
// lose too much in bfloat16 or float16.
at::Tensor normalize_across_towers(const at::Tensor& input, const Normalization& n,
                                   const CrossTowerAverage& average) {
  const at::Tensor x = input.to(at::promote_types(input.scalar_type(), at::kFloat));
  const Shape over = x.dim() == 4 ? Shape{0, 2, 3} : Shape{0};
  const at::Tensor own = at::stack({x.mean(over), x.square().mean(over)});
  const at::Tensor all = average(own);
  TP_CHECK(all.defined() && all.sizes() == own.sizes(), detail::layer_place("BatchNorm"),
           "sync_statistics was given a tensor of shape [{}] and returned {}. Return the average, "
           "in the same shape.",
           fmt::join(own.sizes(), ", "),
           all.defined() ? fmt::format("[{}]", fmt::join(all.sizes(), ", ")) : "none");
  const at::Tensor mean = all[0];
  const at::Tensor variance = (all[1] - mean.square()).clamp_min(0);  // rounding may make it less
  if (n.mean.defined()) {
    // Without Bessel's correction: how many examples are behind the average is not known here.
    at::NoGradGuard no_grad;
    at::Tensor(n.mean).lerp_(mean.to(n.mean.scalar_type()), 1 - n.momentum);
    at::Tensor(n.variance).lerp_(variance.to(n.variance.scalar_type()), 1 - n.momentum);
  }
  const auto per_channel = [&](const at::Tensor& values) {
    return x.dim() == 4 ? values.view({1, -1, 1, 1}) : values;
  };
  at::Tensor factor = (variance + n.epsilon).rsqrt();
  if (n.gamma.defined()) factor = factor * n.gamma;
  at::Tensor y = (x - per_channel(mean)) * per_channel(factor);
  if (n.beta.defined()) y = y + per_channel(n.beta);
  return y.to(input.scalar_type());
}

// What the call, its options and the tower make of the variables.
Normalization make_normalization(const BatchNormOptions& options, int64_t channels) {
  Normalization n{.momentum = options.momentum.value_or(0.9),
                  .epsilon = options.epsilon.value_or(1e-5)};
  TP_CHECK(n.momentum >= 0 && n.momentum <= 1, detail::layer_place("BatchNorm"),
           "the momentum is {}. It is the share of the old average that is kept, in [0, 1].",
           n.momentum);
  TP_CHECK(!options.virtual_batch_size || !options.sync_statistics,
           detail::layer_place("BatchNorm"),
           "virtual_batch_size makes the batch of statistics smaller, sync_statistics larger. Set "
           "one of them.");
  const Shape shape{channels};
  if (options.center.value_or(true)) n.beta = get_variable("beta", shape, init::zeros());
  if (options.scale.value_or(true)) {
    n.gamma = get_variable("gamma", shape, options.gamma_init.value_or(init::ones()));
  }
  n.mean = get_variable("mean/EMA", shape, {.role = VariableRole::kModel});
  n.variance =
      get_variable("variance/EMA", shape, {.init = init::ones(), .role = VariableRole::kModel});
  return n;
}

bool keeps_statistics(const BatchNormOptions& options) {
  const TowerContext* tower = TowerContext::current();
  return (tower == nullptr || tower->is_main_training_tower()) &&
         options.ema_update != EmaUpdate::kSkip && !VariableGetterScope::freezes_layers();
}

at::Tensor normalize_by_batch(const at::Tensor& input, Normalization n,
                              const BatchNormOptions& options) {
  if (!keeps_statistics(options)) n.mean = n.variance = at::Tensor();
  if (options.virtual_batch_size) {
    return normalize_in_parts(input, std::move(n), *options.virtual_batch_size);
  }
  if (options.sync_statistics && *options.sync_statistics) {
    return normalize_across_towers(input, n, *options.sync_statistics);
  }
  TP_CHECK(
      input.numel() != input.size(1), detail::layer_place("BatchNorm"),
      "an input of shape [{}] has one value per channel: normalized by itself, it is always 0. "
      "Train with larger batches, and without a last one of 1.",
      fmt::join(input.sizes(), ", "));
  return normalize(input, n, /*use_batch_statistics=*/true);
}

}  // namespace

at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions call_options) {
  return run_layer("BatchNorm", name, input, [&] {
    const BatchNormOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("BatchNorm", input, {2, 4}, "[N, C] or [N, C, H, W]");
    Normalization n = make_normalization(options, input.size(1));
    const bool is_frozen = VariableGetterScope::freezes_layers();
    const bool use_batch_statistics = options.training.value_or(is_training() && !is_frozen);
    if (is_training() && !use_batch_statistics && !is_frozen) {
      log::warning_once("[{}] uses the moving statistics in training: it is frozen.",
                        detail::layer_place("BatchNorm"));
    }
    return detail::activate(use_batch_statistics
                                ? normalize_by_batch(input, std::move(n), options)
                                : normalize(input, n, /*use_batch_statistics=*/false),
                            options.activation);
  });
}

at::Tensor BNReLU(const std::string& name, const at::Tensor& input) {
  return run_layer("BNReLU", name, input, [&] { return at::relu(BatchNorm("bn", input)); });
}

}  // namespace tensorpack
