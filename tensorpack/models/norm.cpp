// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/norm.h"

#include <ATen/ATen.h>

#include "tensorpack/models/detail/affine.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

bool use_cudnn() { return at::globalContext().userEnabledCuDNN(); }

}  // namespace

at::Tensor LayerNorm(const std::string& name, const at::Tensor& input,
                     LayerNormOptions call_options) {
  return run_layer("LayerNorm", name, input, [&] {
    const LayerNormOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("LayerNorm", input, {2, 3, 4}, "[N, C], [N, T, C] or [N, C, H, W]");
    const double epsilon = options.epsilon.value_or(1e-5);
    if (input.dim() == 4) {
      const auto [beta, gamma] = detail::get_affine(options, input.size(1));
      return at::group_norm(input, 1, gamma, beta, epsilon, use_cudnn());
    }
    const auto [beta, gamma] = detail::get_affine(options, input.size(-1));
    return at::layer_norm(input, {input.size(-1)}, gamma, beta, epsilon, use_cudnn());
  });
}

at::Tensor InstanceNorm(const std::string& name, const at::Tensor& input,
                        InstanceNormOptions call_options) {
  return run_layer("InstanceNorm", name, input, [&] {
    const InstanceNormOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("InstanceNorm", input, {4}, "[N, C, H, W]");
    const auto [beta, gamma] = detail::get_affine(options, input.size(1));
    return at::instance_norm(input, gamma, beta, {}, {}, /*use_input_stats=*/true, /*momentum=*/0,
                             options.epsilon.value_or(1e-5), use_cudnn());
  });
}

at::Tensor GroupNorm(const std::string& name, const at::Tensor& input,
                     GroupNormOptions call_options) {
  return run_layer("GroupNorm", name, input, [&] {
    const GroupNormOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("GroupNorm", input, {4}, "[N, C, H, W]");
    const int64_t groups = options.groups.value_or(32);
    TP_CHECK(groups > 0 && input.size(1) % groups == 0, detail::layer_place("GroupNorm"),
             "{} groups do not divide {}. Set .groups to a divisor.", groups,
             counted(input.size(1), "channel"));
    const auto [beta, gamma] = detail::get_affine(options, input.size(1));
    return at::group_norm(input, groups, gamma, beta, options.epsilon.value_or(1e-5), use_cudnn());
  });
}

}  // namespace tensorpack
