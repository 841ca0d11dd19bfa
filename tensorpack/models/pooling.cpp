// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/pooling.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

void check_image(const char* layer, const at::Tensor& input) {
  TP_CHECK(input.dim() == 4, fmt::format("{} '{}'", layer, VariableScope::current_path()),
           "the input must be [N, C, H, W], got [{}]. Use unsqueeze or reshape first.",
           fmt::join(input.sizes(), ", "));
}

}  // namespace

at::Tensor MaxPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      PoolingOptions options) {
  return run_layer("MaxPooling", name, input, [&] {
    check_image("MaxPooling", input);
    const Size2D strides = options.strides.value_or(pool_size);
    return at::max_pool2d(input, {pool_size.height, pool_size.width},
                          {strides.height, strides.width},
                          {options.padding.height, options.padding.width});
  });
}

at::Tensor AvgPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      PoolingOptions options) {
  return run_layer("AvgPooling", name, input, [&] {
    check_image("AvgPooling", input);
    const Size2D strides = options.strides.value_or(pool_size);
    return at::avg_pool2d(input, {pool_size.height, pool_size.width},
                          {strides.height, strides.width},
                          {options.padding.height, options.padding.width});
  });
}

at::Tensor GlobalAvgPooling(const std::string& name, const at::Tensor& input) {
  return run_layer("GlobalAvgPooling", name, input, [&] {
    check_image("GlobalAvgPooling", input);
    return input.mean({2, 3});
  });
}

}  // namespace tensorpack
