// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/pooling.h"

#include <ATen/ATen.h>

#include <array>
#include <limits>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Windows over an image: where they are, and what is around it.
struct Windows {
  Size2D size, strides;
  detail::Border border;

  // What operators are to add themselves.
  std::array<int64_t, 2> padding() const {
    if (!border.is_even()) return {0, 0};
    return {border.top, border.left};
  }
};

template <typename Options>
Windows windows_of(const char* layer, const at::Tensor& input, Size2D size,
                   const Options& options) {
  detail::check_rank(layer, input, {4}, "[N, C, H, W]");
  const Size2D strides = options.strides.value_or(size);
  TP_CHECK(size.height > 0 && size.width > 0 && strides.height > 0 && strides.width > 0,
           detail::layer_place(layer), "pool size {}x{} and strides {}x{} must be 1 or more.",
           size.height, size.width, strides.height, strides.width);
  const Padding padding = options.padding.value_or(Padding::valid());
  return {size, strides, detail::border_of(padding, input, size, strides)};
}

at::Tensor mean_of(const at::Tensor& input, const Windows& windows, bool count_padding) {
  return at::avg_pool2d(input, {windows.size.height, windows.size.width},
                        {windows.strides.height, windows.strides.width}, windows.padding(),
                        /*ceil_mode=*/false, count_padding);
}

}  // namespace

at::Tensor MaxPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      MaxPoolingOptions options) {
  return run_layer("MaxPooling", name, input, [&] {
    const Windows windows =
        windows_of("MaxPooling", input, pool_size, with_arg_scope(std::move(options)));
    constexpr double kLeast = -std::numeric_limits<double>::infinity();
    const at::Tensor padded = windows.border.is_even()
                                  ? input
                                  : at::constant_pad_nd(input, windows.border.pad_widths(), kLeast);
    return at::max_pool2d(padded, {pool_size.height, pool_size.width},
                          {windows.strides.height, windows.strides.width}, windows.padding());
  });
}

at::Tensor AvgPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      AvgPoolingOptions call_options) {
  return run_layer("AvgPooling", name, input, [&] {
    const AvgPoolingOptions options = with_arg_scope(std::move(call_options));
    const Windows windows = windows_of("AvgPooling", input, pool_size, options);
    const Padding padding = options.padding.value_or(Padding::valid());
    const bool counts = options.count_padding.value_or(padding.kind != Padding::Kind::kSame);
    if (windows.border.is_even()) return mean_of(input, windows, counts);
    const auto with_border = [&](const at::Tensor& image) {
      return mean_of(at::constant_pad_nd(image, windows.border.pad_widths()), windows, true);
    };
    const at::Tensor mean = with_border(input);
    if (counts) return mean;
    return mean / with_border(at::ones({1, 1, input.size(2), input.size(3)}, input.options()));
  });
}

at::Tensor GlobalAvgPooling(const std::string& name, const at::Tensor& input) {
  return run_layer("GlobalAvgPooling", name, input, [&] {
    detail::check_rank("GlobalAvgPooling", input, {4}, "[N, C, H, W]");
    return input.mean({2, 3});
  });
}

}  // namespace tensorpack
