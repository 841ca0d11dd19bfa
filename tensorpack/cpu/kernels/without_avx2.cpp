// SPDX-License-Identifier: Apache-2.0
// What stands in for the kernels on processors that are not x86-64: libtorch's operators. No pass
// chooses them there.
#include <ATen/ATen.h>

#include "tensorpack/cpu/kernels/max_pool.h"
#include "tensorpack/cpu/kernels/weight_gradient.h"
#include "tensorpack/cpu/kernels/winograd.h"

namespace tensorpack::cpu {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& grad,
                                                         const at::Tensor& input,
                                                         const at::Tensor& weight,
                                                         const Padding& padding,
                                                         std::array<bool, 3> mask) {
  const std::vector<int64_t> bias_size = {weight.size(0)};
  return at::convolution_backward(grad, input, weight, at::IntArrayRef(bias_size), {1, 1}, padding,
                                  {1, 1}, false, {0, 0}, 1, mask);
}

}  // namespace

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
  const at::Tensor weight = at::empty(weight_size, grad.options());
  const auto found = gradients(grad, input, weight, padding, {false, true, true});
  return {std::get<1>(found), std::get<2>(found)};
}

bool fits_winograd(at::IntArrayRef, at::IntArrayRef, const Padding&) { return false; }

at::Tensor winograd(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                    const Padding& padding) {
  return at::convolution(input, weight, bias, {1, 1}, padding, {1, 1}, false, {0, 0}, 1);
}

at::Tensor winograd_input_gradient(const at::Tensor& grad, const at::Tensor& weight,
                                   at::IntArrayRef input_size, const Padding& padding) {
  const at::Tensor input = at::empty(input_size, grad.options());
  return std::get<0>(gradients(grad, input, weight, padding, {true, false, false}));
}

at::Tensor winograd_weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                    const Padding& padding) {
  const at::Tensor weight = at::empty({grad.size(1), input.size(1), 3, 3}, grad.options());
  return std::get<1>(gradients(grad, input, weight, padding, {false, true, false}));
}

}  // namespace tensorpack::cpu
