// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/conv2d.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/call_scope.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/models/detail/weights.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

void check_sizes(const std::string& where, Size2D kernel, Size2D strides, Size2D dilation) {
  TP_CHECK(kernel.height > 0 && kernel.width > 0 && strides.height > 0 && strides.width > 0 &&
               dilation.height > 0 && dilation.width > 0,
           where, "kernel {}x{}, strides {}x{} and dilation {}x{} must be 1 or more.",
           kernel.height, kernel.width, strides.height, strides.width, dilation.height,
           dilation.width);
}

// Images of one channel are in both memory formats at once, and libtorch takes them for contiguous:
// its convolution, and what follows it, are then many times slower on the CPU, and slower on a GPU.
at::Tensor in_wanted_format(const at::Tensor& input) {
  CallScope* call = CallScope::current();
  if (input.size(1) != 1 || !input.is_contiguous() || call == nullptr ||
      !call->graph().wants_channels_last()) {
    return input;
  }
  return input.view({input.size(0), input.size(2), input.size(3), 1}).permute({0, 3, 1, 2});
}

at::Tensor convolve(const char* layer, const at::Tensor& input, const Conv2DOptions& options) {
  const std::string where = detail::layer_place(layer);
  detail::check_rank(layer, input, {4}, "[N, C, H, W]");
  TP_CHECK(options.filters && *options.filters > 0, where,
           "the number of filters is {}. Set .filters to 1 or more.", options.filters.value_or(0));
  TP_CHECK(options.kernel_size.has_value(), where, "it has no kernel size. Set .kernel_size.");
  const Size2D kernel = *options.kernel_size;
  const Size2D strides = options.strides.value_or(1);
  const Size2D dilation = options.dilation.value_or(1);
  const int64_t groups = options.groups.value_or(1);
  const int64_t channels = input.size(1);
  check_sizes(where, kernel, strides, dilation);
  TP_CHECK(groups > 0 && channels % groups == 0 && *options.filters % groups == 0, where,
           "{} groups do not divide {} and {}. Choose a divisor of both.", groups,
           counted(channels, "input channel"), counted(*options.filters, "filter"));

  const auto [weight, bias] = detail::get_weights(
      options, {*options.filters, channels / groups, kernel.height, kernel.width},
      *options.filters);
  const detail::Border border = detail::border_of(options.padding.value_or(Padding::same()), input,
                                                  kernel, strides, dilation);
  const at::Tensor padded =
      border.is_even() ? input : at::constant_pad_nd(input, border.pad_widths());
  const Size2D amount = border.is_even() ? Size2D(border.top, border.left) : 0;
  return detail::finish_output(
      at::conv2d(in_wanted_format(padded), detail::kernel_for(padded, weight), bias,
                 {strides.height, strides.width}, at::IntArrayRef{amount.height, amount.width},
                 {dilation.height, dilation.width}, groups),
      options);
}

}  // namespace

at::Tensor Conv2D(const std::string& name, const at::Tensor& input, Conv2DOptions options) {
  return run_layer("Conv2D", name, input,
                   [&] { return convolve("Conv2D", input, with_arg_scope(std::move(options))); });
}

at::Tensor DepthwiseConv2D(const std::string& name, const at::Tensor& input,
                           DepthwiseConv2DOptions call_options) {
  return run_layer("DepthwiseConv2D", name, input, [&] {
    const DepthwiseConv2DOptions options = with_arg_scope(std::move(call_options));
    detail::check_rank("DepthwiseConv2D", input, {4}, "[N, C, H, W]");
    const int64_t multiplier = options.channel_multiplier.value_or(1);
    TP_CHECK(multiplier > 0, detail::layer_place("DepthwiseConv2D"),
             "the channel multiplier is {}. Set .channel_multiplier to 1 or more.", multiplier);
    return convolve("DepthwiseConv2D", input,
                    {.filters = input.size(1) * multiplier,
                     .kernel_size = options.kernel_size,
                     .strides = options.strides,
                     .padding = options.padding,
                     .activation = options.activation,
                     .use_bias = options.use_bias,
                     .dilation = options.dilation,
                     .groups = input.size(1),
                     .kernel_init = options.kernel_init,
                     .bias_init = options.bias_init,
                     .kernel_regularizer = options.kernel_regularizer,
                     .bias_regularizer = options.bias_regularizer,
                     .activity_regularizer = options.activity_regularizer});
  });
}

}  // namespace tensorpack
