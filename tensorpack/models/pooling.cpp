// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/pooling.h"

#include <ATen/ATen.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

void check_sizes(const char* layer, Size2D pool_size, const PoolingOptions& options) {
  const Size2D strides = options.strides.value_or(pool_size);
  TP_CHECK(pool_size.height > 0 && pool_size.width > 0 && strides.height > 0 && strides.width > 0,
           detail::layer_place(layer), "pool size {}x{} and strides {}x{} must be 1 or more.",
           pool_size.height, pool_size.width, strides.height, strides.width);
}

}  // namespace

at::Tensor MaxPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      PoolingOptions options) {
  return run_layer("MaxPooling", name, input, [&] {
    detail::check_rank("MaxPooling", input, {4}, "[N, C, H, W]");
    check_sizes("MaxPooling", pool_size, options);
    const Size2D strides = options.strides.value_or(pool_size);
    return at::max_pool2d(input, {pool_size.height, pool_size.width},
                          {strides.height, strides.width},
                          {options.padding.height, options.padding.width});
  });
}

at::Tensor AvgPooling(const std::string& name, const at::Tensor& input, Size2D pool_size,
                      PoolingOptions options) {
  return run_layer("AvgPooling", name, input, [&] {
    detail::check_rank("AvgPooling", input, {4}, "[N, C, H, W]");
    check_sizes("AvgPooling", pool_size, options);
    const Size2D strides = options.strides.value_or(pool_size);
    return at::avg_pool2d(input, {pool_size.height, pool_size.width},
                          {strides.height, strides.width},
                          {options.padding.height, options.padding.width});
  });
}

at::Tensor GlobalAvgPooling(const std::string& name, const at::Tensor& input) {
  return run_layer("GlobalAvgPooling", name, input, [&] {
    detail::check_rank("GlobalAvgPooling", input, {4}, "[N, C, H, W]");
    return input.mean({2, 3});
  });
}

}  // namespace tensorpack
