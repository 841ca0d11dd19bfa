// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/conv2d.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// How much SAME padding adds before and after one dimension.
std::pair<int64_t, int64_t> same_padding(int64_t size, int64_t kernel, int64_t stride,
                                         int64_t dilation) {
  const int64_t outputs = (size + stride - 1) / stride;
  const int64_t reach = (kernel - 1) * dilation + 1;
  const int64_t total = std::max<int64_t>((outputs - 1) * stride + reach - size, 0);
  return {total / 2, total - total / 2};
}

}  // namespace

at::Tensor Conv2D(const std::string& name, const at::Tensor& input, Conv2DOptions call_options) {
  return run_layer("Conv2D", name, input, [&] {
    const Conv2DOptions options = with_arg_scope(std::move(call_options));
    const std::string where = "Conv2D '" + VariableScope::current_path() + "'";
    TP_CHECK(options.filters && *options.filters > 0, where,
             "the number of filters is {}. Set .filters to 1 or more.",
             options.filters.value_or(0));
    TP_CHECK(options.kernel_size.has_value(), where, "it has no kernel size. Set .kernel_size.");
    TP_CHECK(input.dim() == 4, where,
             "the input must be [N, C, H, W], got [{}]. Use unsqueeze or reshape first.",
             fmt::join(input.sizes(), ", "));
    const Size2D kernel = *options.kernel_size;
    const Size2D strides = options.strides.value_or(1);
    const Size2D dilation = options.dilation.value_or(1);
    const int64_t groups = options.groups.value_or(1);
    const int64_t channels = input.size(1);
    TP_CHECK(kernel.height > 0 && kernel.width > 0 && strides.height > 0 && strides.width > 0 &&
                 dilation.height > 0 && dilation.width > 0,
             where, "kernel {}x{}, strides {}x{} and dilation {}x{} must be 1 or more.",
             kernel.height, kernel.width, strides.height, strides.width, dilation.height,
             dilation.width);
    TP_CHECK(groups > 0 && channels % groups == 0 && *options.filters % groups == 0, where,
             "{} groups do not divide {} input channels and {} filters. Choose a divisor of both.",
             groups, channels, *options.filters);

    const at::Tensor weight = get_variable(
        "W", {*options.filters, channels / groups, kernel.height, kernel.width},
        {.init = options.kernel_init.value_or(init::he_normal()), .channels_last = true});
    at::Tensor bias;
    if (options.use_bias.value_or(true)) {
      bias = get_variable("b", {*options.filters}, options.bias_init.value_or(init::zeros()));
    }

    const Padding padding = options.padding.value_or(Padding::same());
    Size2D amount = padding.amount;
    at::Tensor padded = input;
    if (padding.kind == Padding::Kind::kSame) {
      const auto [top, bottom] =
          same_padding(input.size(2), kernel.height, strides.height, dilation.height);
      const auto [left, right] =
          same_padding(input.size(3), kernel.width, strides.width, dilation.width);
      if (top == bottom && left == right) {
        amount = {top, left};
      } else {
        padded = at::constant_pad_nd(input, {left, right, top, bottom});
      }
    }
    at::Tensor output = at::conv2d(padded, weight, bias, {strides.height, strides.width},
                                   at::IntArrayRef{amount.height, amount.width},
                                   {dilation.height, dilation.width}, groups);
    return options.activation && *options.activation ? (*options.activation)(output) : output;
  });
}

}  // namespace tensorpack
