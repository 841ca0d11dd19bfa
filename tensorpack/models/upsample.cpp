// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/models/upsample.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

void check_factor(const char* layer, const at::Tensor& input, Size2D factor) {
  detail::check_rank(layer, input, {4}, "[N, C, H, W]");
  TP_CHECK(factor.height > 0 && factor.width > 0, detail::layer_place(layer),
           "it enlarges by {}x{}. Both must be 1 or more.", factor.height, factor.width);
}

}  // namespace

at::Tensor FixedUnPooling(const std::string& name, const at::Tensor& input, Size2D shape,
                          FixedUnPoolingOptions options) {
  return run_layer("FixedUnPooling", name, input, [&] {
    check_factor("FixedUnPooling", input, shape);
    const auto [height, width] = shape;
    // [N, C, H, 1, W, 1], to become [N, C, H, height, W, width].
    at::Tensor blocks = input.unsqueeze(3).unsqueeze(5);
    if (options.unpool_mat.defined()) {
      const at::Tensor& matrix = options.unpool_mat;
      TP_CHECK(matrix.dim() == 2 && matrix.size(0) == height && matrix.size(1) == width,
               detail::layer_place("FixedUnPooling"),
               "the matrix is [{}] and the shape {}x{}. Give both the same size.",
               fmt::join(matrix.sizes(), ", "), height, width);
      blocks = blocks * matrix.view({1, 1, 1, height, 1, width});
    } else {
      blocks = at::constant_pad_nd(blocks, {0, width - 1, 0, 0, 0, height - 1});
    }
    return blocks.reshape(
        {input.size(0), input.size(1), input.size(2) * height, input.size(3) * width});
  });
}

at::Tensor BilinearUpSample(const std::string& name, const at::Tensor& input, Size2D factor) {
  return run_layer("BilinearUpSample", name, input, [&] {
    check_factor("BilinearUpSample", input, factor);
    return at::upsample_bilinear2d(input,
                                   {input.size(2) * factor.height, input.size(3) * factor.width},
                                   /*align_corners=*/false);
  });
}

}  // namespace tensorpack
