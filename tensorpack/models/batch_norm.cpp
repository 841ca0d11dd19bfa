// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/batch_norm.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/graph/variable_getter.h"
#include "tensorpack/models/detail/affine.h"
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
template <typename Options>
Normalization make_normalization(const char* layer, const Options& options, int64_t channels) {
  Normalization n{.momentum = options.momentum.value_or(0.9),
                  .epsilon = options.epsilon.value_or(1e-5)};
  TP_CHECK(n.momentum >= 0 && n.momentum <= 1, detail::layer_place(layer),
           "the momentum is {}. It is the share of the old average that is kept, in [0, 1].",
           n.momentum);
  const detail::Affine learned = detail::get_affine(options, channels);
  n.beta = learned.beta;
  n.gamma = learned.gamma;
  n.mean = get_variable("mean/EMA", {channels}, {.role = VariableRole::kModel});
  n.variance = get_variable("variance/EMA", {channels},
                            {.init = init::ones(), .role = VariableRole::kModel});
  return n;
}

bool uses_batch_statistics(const char* layer, std::optional<bool> training) {
  const bool is_frozen = VariableGetterScope::freezes_layers();
  const bool uses = training.value_or(is_training() && !is_frozen);
  if (is_training() && !uses && !is_frozen) {
    logging::warning_once("[{}] uses the moving statistics in training: it is frozen.",
                          detail::layer_place(layer));
  }
  return uses;
}

void check_has_statistics(const char* layer, const at::Tensor& input) {
  TP_CHECK(
      input.numel() != input.size(1), detail::layer_place(layer),
      "an input of shape [{}] has one value per channel: normalized by itself, it is always 0. "
      "Train with larger batches, and without a last one of 1.",
      fmt::join(input.sizes(), ", "));
}

bool keeps_statistics() {
  const TowerContext* tower = TowerContext::current();
  return (tower == nullptr || tower->is_main_training_tower()) &&
         !VariableGetterScope::freezes_layers();
}

at::Tensor normalize_by_batch(const at::Tensor& input, Normalization n,
                              const BatchNormOptions& options) {
  if (!keeps_statistics() || options.ema_update == EmaUpdate::kSkip) {
    n.mean = n.variance = at::Tensor();
  }
  if (options.virtual_batch_size) {
    return normalize_in_parts(input, std::move(n), *options.virtual_batch_size);
  }
  if (options.sync_statistics && *options.sync_statistics) {
    return normalize_across_towers(input, n, *options.sync_statistics);
  }
  check_has_statistics("BatchNorm", input);
  return normalize(input, n, /*use_batch_statistics=*/true);
}

// By how much the batch's deviation and mean differ from the moving ones, in units of these and
// within the limits. Gradients take both for constants.
struct Correction {
  at::Tensor scale, shift;
};

Correction correction_of(const at::Tensor& input, const Normalization& n, double rmax,
                         double dmax) {
  at::NoGradGuard no_grad;
  const at::Tensor x = input.to(at::promote_types(input.scalar_type(), at::kFloat));
  const Shape over = x.dim() == 4 ? Shape{0, 2, 3} : Shape{0};
  const auto [variance, mean] = at::var_mean(x, over, /*unbiased=*/false);
  const at::Tensor moving_deviation = (n.variance + n.epsilon).sqrt();
  return {((variance + n.epsilon).sqrt() / moving_deviation).clamp(1 / rmax, rmax),
          ((mean - n.mean) / moving_deviation).clamp(-dmax, dmax)};
}

// Normalized by the batch, and corrected by what is then beta and gamma of batch norm.
at::Tensor renormalize(const at::Tensor& input, Normalization n, double rmax, double dmax) {
  const Correction correction = correction_of(input, n, rmax, dmax);
  n.beta = n.beta.defined() ? n.beta : at::zeros_like(n.mean);
  n.beta = n.beta + (n.gamma.defined() ? n.gamma * correction.shift : correction.shift);
  n.gamma = n.gamma.defined() ? n.gamma * correction.scale : correction.scale;
  if (!keeps_statistics()) n.mean = n.variance = at::Tensor();
  return normalize(input, n, /*use_batch_statistics=*/true);
}

}  // namespace

at::Tensor BatchNorm(const std::string& name, const at::Tensor& input,
                     BatchNormOptions call_options) {
  return run_layer("BatchNorm", name, input, [&] {
    const BatchNormOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("BatchNorm", input, {2, 4}, "[N, C] or [N, C, H, W]");
    TP_CHECK(!options.virtual_batch_size || !options.sync_statistics,
             detail::layer_place("BatchNorm"),
             "virtual_batch_size makes the batch of statistics smaller, sync_statistics larger. "
             "Set one of them.");
    Normalization n = make_normalization("BatchNorm", options, input.size(1));
    return detail::activate(uses_batch_statistics("BatchNorm", options.training)
                                ? normalize_by_batch(input, std::move(n), options)
                                : normalize(input, n, /*use_batch_statistics=*/false),
                            options.activation);
  });
}

at::Tensor BatchNormReLU::operator()(const std::string& name, const at::Tensor& input) const {
  return run_layer("BNReLU", name, input, [&] { return (*this)(input); });
}

at::Tensor BatchNormReLU::operator()(const at::Tensor& input) const {
  return at::relu(BatchNorm("bn", input));
}

at::Tensor BatchRenorm(const std::string& name, const at::Tensor& input,
                       BatchRenormOptions call_options) {
  return run_layer("BatchRenorm", name, input, [&] {
    const BatchRenormOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("BatchRenorm", input, {2, 4}, "[N, C] or [N, C, H, W]");
    const double rmax = options.rmax.value_or(0);
    const double dmax = options.dmax.value_or(-1);
    TP_CHECK(rmax >= 1 && dmax >= 0, detail::layer_place("BatchRenorm"),
             "rmax is {} and dmax {}. Set .rmax to 1 or more and .dmax to 0 or more; 1 and 0 are "
             "batch norm.",
             rmax, dmax);
    Normalization n = make_normalization("BatchRenorm", options, input.size(1));
    if (!uses_batch_statistics("BatchRenorm", options.training)) {
      return detail::activate(normalize(input, n, /*use_batch_statistics=*/false),
                              options.activation);
    }
    check_has_statistics("BatchRenorm", input);
    return detail::activate(renormalize(input, std::move(n), rmax, dmax), options.activation);
  });
}

}  // namespace tensorpack
