// SPDX-License-Identifier: Apache-2.0
// What stands in for the kernels on processors that are not x86-64: libtorch's operators. No pass
// chooses them there.
#include <ATen/ATen.h>

#include "tensorpack/cpu/kernels/max_pool.h"
#include "tensorpack/cpu/kernels/plain_convolution.h"
#include "tensorpack/cpu/kernels/weight_gradient.h"
#include "tensorpack/cpu/kernels/winograd.h"

namespace tensorpack::cpu {

std::tuple<at::Tensor, at::Tensor> pool_squares(const at::Tensor& input, bool relu) {
  const auto [y, indices] = at::max_pool2d_with_indices(relu ? at::relu(input) : input, 2);
  const at::Tensor row = indices.div(input.size(3), "floor"), column = indices % input.size(3);
  const at::Tensor places = row % 2 * 2 + column % 2;
  return {y, (relu ? places.masked_fill(y <= 0, 255) : places).to(at::kByte)};
}

at::Tensor pool_squares_backward(const at::Tensor& grad, const at::Tensor& places,
                                 at::IntArrayRef input_size) {
  const at::Tensor result = at::zeros(input_size, grad.options());
  for (int64_t place = 0; place < 4; ++place) {
    result.slice(2, place / 2, input_size[2] / 2 * 2, 2)
        .slice(3, place % 2, input_size[3] / 2 * 2, 2)
        .copy_(at::where(places == place, grad, at::zeros_like(grad)));
  }
  return result;
}

bool fits_weight_gradient(at::IntArrayRef, at::IntArrayRef) { return false; }

std::tuple<at::Tensor, at::Tensor> weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                                   at::IntArrayRef weight_size,
                                                   std::array<int64_t, 2> padding) {
  return {plain_weight_gradient(grad, input, weight_size, padding), grad.sum({0, 2, 3})};
}

bool fits_winograd(at::IntArrayRef, at::IntArrayRef, const Padding&) { return false; }

at::Tensor winograd(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    const Padding& padding) {
  return plain_convolution(input, weight, bias, padding);
}

at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight,
                                   at::IntArrayRef input_size, const Padding& padding) {
  return plain_input_gradient(grad, weight, input_size, padding);
}

at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                    const Padding& padding) {
  return plain_weight_gradient(grad, input, {grad.size(1), input.size(1), 3, 3}, padding);
}

}  // namespace tensorpack::cpu
