// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cpu/kernels/plain_convolution.h"

#include <ATen/ATen.h>

#include <tuple>

namespace tensorpack::cpu {
namespace {

std::tuple<at::Tensor, at::Tensor, at::Tensor> gradients(const at::Tensor& grad,
                                                         const at::Tensor& input,
                                                         const at::Tensor& weight,
                                                         const Padding& padding,
                                                         std::array<bool, 3> mask) {
  return at::convolution_backward(grad, input, weight, c10::nullopt, {1, 1}, padding, {1, 1}, false,
                                  {0, 0}, 1, mask);
}

// For its size and layout alone.
at::Tensor empty_image(const at::Tensor& like, at::IntArrayRef size) {
  return at::empty(size, like.options(), like.suggest_memory_format());
}

}  // namespace

at::Tensor plain_convolution(const at::Tensor& input, const at::Tensor& weight,
                             const at::Tensor& bias, const Padding& padding) {
  return at::convolution(input, weight, bias, {1, 1}, padding, {1, 1}, false, {0, 0}, 1);
}

at::Tensor plain_input_gradient(const at::Tensor& grad, const at::Tensor& weight,
                                at::IntArrayRef input_size, const Padding& padding) {
  return std::get<0>(
      gradients(grad, empty_image(grad, input_size), weight, padding, {true, false, false}));
}

at::Tensor plain_weight_gradient(const at::Tensor& grad, const at::Tensor& input,
                                 at::IntArrayRef weight_size, const Padding& padding) {
  return std::get<1>(
      gradients(grad, input, empty_image(input, weight_size), padding, {false, true, false}));
}

}  // namespace tensorpack::cpu
