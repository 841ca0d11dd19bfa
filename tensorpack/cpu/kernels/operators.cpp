// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/cpu/kernels/operators.h"

#include <ATen/ATen.h>
#include <torch/library.h>

#include <array>
#include <tuple>

#include "tensorpack/cpu/kernels/max_pool.h"
#include "tensorpack/cpu/kernels/weight_gradient.h"
#include "tensorpack/cpu/kernels/winograd.h"
#include "tensorpack/utils/find_operator.h"

namespace tensorpack::cpu {
namespace {

std::array<int64_t, 2> pair(at::IntArrayRef values) { return {values.at(0), values.at(1)}; }

using Gradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

at::Tensor run_winograd(const at::Tensor& input, const at::Tensor& weight,
                        const c10::optional<at::Tensor>& bias, at::IntArrayRef padding) {
  return winograd(input, weight, bias.value_or(at::Tensor()), pair(padding));
}

Gradients run_winograd_backward(const at::Tensor& grad, const at::Tensor& input,
                                const at::Tensor& weight, at::IntArrayRef padding,
                                std::array<bool, 3> mask) {
  Gradients gradients;
  if (mask[0]) {
    std::get<0>(gradients) = winograd_input_gradient(grad, weight, input.sizes(), pair(padding));
  }
  if (mask[1]) std::get<1>(gradients) = winograd_weight_gradient(grad, input, pair(padding));
  if (mask[2]) std::get<2>(gradients) = grad.sum({0, 2, 3});
  return gradients;
}

std::tuple<at::Tensor, at::Tensor> run_weight_gradient(const at::Tensor& grad,
                                                       const at::Tensor& input,
                                                       const at::Tensor& weight,
                                                       at::IntArrayRef padding) {
  const auto [of_weight, of_bias] = weight_gradient(grad, input, weight.sizes(), pair(padding));
  return {at::empty_like(weight).copy_(of_weight), of_bias};
}

}  // namespace

c10::OperatorHandle pool_squares_operator() { return find_operator("tensorpack::pool_squares"); }
c10::OperatorHandle pool_squares_backward_operator() {
  return find_operator("tensorpack::pool_squares_backward");
}
c10::OperatorHandle weight_gradient_operator() {
  return find_operator("tensorpack::weight_gradient");
}
c10::OperatorHandle winograd_operator() { return find_operator("tensorpack::winograd"); }
c10::OperatorHandle winograd_backward_operator() {
  return find_operator("tensorpack::winograd_backward");
}

TORCH_LIBRARY_FRAGMENT(tensorpack, library) {
  library.def("pool_squares(Tensor input, bool relu) -> (Tensor, Tensor)");
  library.def("pool_squares_backward(Tensor grad, Tensor places, int[] input_size) -> Tensor");
  library.def(
      "weight_gradient(Tensor grad, Tensor input, Tensor weight, int[] padding) "
      "-> (Tensor, Tensor)");
  library.def("winograd(Tensor input, Tensor weight, Tensor? bias, int[] padding) -> Tensor");
  library.def(
      "winograd_backward(Tensor grad, Tensor input, Tensor weight, int[] padding, bool[3] mask) "
      "-> (Tensor, Tensor, Tensor)");
}

TORCH_LIBRARY_IMPL(tensorpack, CPU, library) {
  library.impl("pool_squares", pool_squares);
  library.impl("pool_squares_backward", pool_squares_backward);
  library.impl("weight_gradient", run_weight_gradient);
  library.impl("winograd", run_winograd);
  library.impl("winograd_backward", run_winograd_backward);
}

}  // namespace tensorpack::cpu
