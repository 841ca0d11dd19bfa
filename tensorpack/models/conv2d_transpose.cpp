// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/conv2d_transpose.h"

#include <ATen/ATen.h>

#include "tensorpack/models/detail/weights.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// One dimension of the border: what libtorch takes off both sides, adds at the end, and what is
// left to cut off there.
struct Border {
  int64_t padding = 0;
  int64_t extra = 0;
  int64_t cut = 0;

  int64_t output_size(int64_t input, int64_t kernel, int64_t stride) const {
    return (input - 1) * stride - 2 * padding + kernel + extra - cut;
  }
};

Border border_of(Padding::Kind kind, int64_t amount, int64_t kernel, int64_t stride) {
  if (kind == Padding::Kind::kExplicit) return {.padding = amount};
  if (kernel < stride) return {.extra = stride - kernel};
  if (kind == Padding::Kind::kValid) return {};
  // The convolution it transposes pads kernel - stride, the odd one at the end.
  const int64_t total = kernel - stride;
  return {.padding = total / 2, .cut = total % 2};
}

}  // namespace

at::Tensor Conv2DTranspose(const std::string& name, const at::Tensor& input,
                           Conv2DTransposeOptions call_options) {
  return run_layer("Conv2DTranspose", name, input, [&] {
    const Conv2DTransposeOptions options = with_arg_scope(std::move(call_options));
    const std::string where = detail::layer_place("Conv2DTranspose");
    detail::check_rank("Conv2DTranspose", input, {4}, "[N, C, H, W]");
    TP_CHECK(options.filters && *options.filters > 0, where,
             "the number of filters is {}. Set .filters to 1 or more.",
             options.filters.value_or(0));
    TP_CHECK(options.kernel_size.has_value(), where, "it has no kernel size. Set .kernel_size.");
    const Size2D kernel = *options.kernel_size;
    const Size2D strides = options.strides.value_or(1);
    TP_CHECK(kernel.height > 0 && kernel.width > 0 && strides.height > 0 && strides.width > 0,
             where, "kernel {}x{} and strides {}x{} must be 1 or more.", kernel.height,
             kernel.width, strides.height, strides.width);

    const Padding padding = options.padding.value_or(Padding::same());
    const Border rows =
        border_of(padding.kind, padding.amount.height, kernel.height, strides.height);
    const Border columns =
        border_of(padding.kind, padding.amount.width, kernel.width, strides.width);
    const int64_t height = rows.output_size(input.size(2), kernel.height, strides.height);
    const int64_t width = columns.output_size(input.size(3), kernel.width, strides.width);
    // libtorch tells it in some versions alone.
    TP_CHECK(height > 0 && width > 0, where,
             "padding {}x{} leaves nothing of an input of {}x{}: the output would be {}x{}. Pad "
             "less.",
             rows.padding, columns.padding, input.size(2), input.size(3), height, width);

    const auto [weight, bias] = detail::get_weights(
        options, {input.size(1), *options.filters, kernel.height, kernel.width}, *options.filters);
    at::Tensor output = at::conv_transpose2d(
        input, detail::kernel_for(input, weight), bias, {strides.height, strides.width},
        {rows.padding, columns.padding}, {rows.extra, columns.extra});
    if (rows.cut > 0) output = output.narrow(2, 0, output.size(2) - rows.cut);
    if (columns.cut > 0) output = output.narrow(3, 0, output.size(3) - columns.cut);
    return detail::finish_output(output, options);
  });
}

}  // namespace tensorpack
