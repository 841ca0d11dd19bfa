// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/conv1d.h"

#include <ATen/ATen.h>

#include "tensorpack/models/detail/weights.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

at::Tensor Conv1D(const std::string& name, const at::Tensor& input, Conv1DOptions call_options) {
  return run_layer("Conv1D", name, input, [&] {
    const Conv1DOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("Conv1D");
    detail::check_rank("Conv1D", input, {3}, "[N, C, L]");
    const int64_t filters = options.filters.value_or(0);
    const int64_t kernel = options.kernel_size.value_or(0);
    const int64_t stride = options.strides.value_or(1);
    const int64_t dilation = options.dilation.value_or(1);
    const int64_t groups = options.groups.value_or(1);
    const int64_t channels = input.size(1);
    TP_CHECK(filters > 0 && kernel > 0 && stride > 0 && dilation > 0, where,
             "filters {}, kernel size {}, stride {} and dilation {} must be 1 or more.", filters,
             kernel, stride, dilation);
    TP_CHECK(groups > 0 && channels % groups == 0 && filters % groups == 0, where,
             "{} groups do not divide {} and {}. Choose a divisor of both.", groups,
             counted(channels, "input channel"), counted(filters, "filter"));

    const auto [weight, bias] =
        detail::get_weights(options, {filters, channels / groups, kernel}, filters);
    const Padding padding = options.padding.value_or(Padding::same());
    int64_t amount = padding.amount.width;
    at::Tensor padded = input;
    if (padding.kind == Padding::Kind::kSame) {
      const auto [left, right] = detail::same_padding(input.size(2), kernel, stride, dilation);
      if (left == right) {
        amount = left;
      } else {
        padded = at::constant_pad_nd(input, {left, right});
      }
    }
    return detail::finish_output(
        at::conv1d(padded, weight, bias, stride, at::IntArrayRef{amount}, dilation, groups),
        options);
  });
}

}  // namespace tensorpack
