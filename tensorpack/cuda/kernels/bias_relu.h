// SPDX-License-Identifier: Apache-2.0
// A bias of each channel and relu, after a convolution.
//
//   tensorpack::bias_relu           y = relu(x + bias)
//   tensorpack::bias_relu_backward  the gradients of x and of the bias
#pragma once

#include <tuple>

#include "tensorpack/cuda/kernels/columns.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

/// By kernels of ours, on matrices as in is_column_matrix(); the bias may be of another type.
at::Tensor bias_relu(const at::Tensor& input, const at::Tensor& bias, const Launcher& launcher);
/// The gradient of the bias is of type `type`. `counters` are those of make_counters().
std::tuple<at::Tensor, at::Tensor> bias_relu_backward(const at::Tensor& grad,
                                                      const at::Tensor& output,
                                                      const at::Tensor& counters,
                                                      c10::ScalarType type,
                                                      const Launcher& launcher);

/// By libtorch's operators, on any device.
at::Tensor bias_relu_unfused(const at::Tensor& input, const at::Tensor& bias);
std::tuple<at::Tensor, at::Tensor> bias_relu_backward_unfused(const at::Tensor& grad,
                                                              const at::Tensor& output,
                                                              c10::ScalarType type);

}  // namespace tensorpack::cuda
