// SPDX-License-Identifier: Apache-2.0
// Max pooling of relu of batch norm in training, as in the first layers of residual networks.
//
//   tensorpack::batch_norm_pool           the maxima, statistics of x, and what the next one needs
//   tensorpack::batch_norm_pool_backward  from the gradient of the maxima to those of x, weight,
//   bias
#pragma once

#include <tuple>

#include "tensorpack/cuda/kernels/batch_norm.h"
#include "tensorpack/cuda/kernels/launcher.h"
#include "tensorpack/cuda/kernels/max_pool.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack::cuda {

struct BatchNormPoolResults {
  at::Tensor y;
  BatchNormStatistics statistics = {};
  at::Tensor taken;   ///< the inputs that became maxima
  at::Tensor places;  ///< a byte for each: where in its window; kNowhere if relu let nothing pass
};

inline constexpr int kNowhere = 255;

struct BatchNormPoolBackwardArguments {
  at::Tensor grad;         // of the maxima
  MaybeTensor other = {};  // a second gradient, to be added
  at::Tensor input, taken, places;
  MaybeTensor weight = {}, bias = {};
  BatchNormStatistics statistics = {};
};

/// The gradients of input, weight and bias.
using BatchNormPoolGradients = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

/// By kernels of ours, on an image in channels_last. Residual and relu of the arguments are not
/// looked at. `counters` are those of make_counters().
BatchNormPoolResults batch_norm_pool(const BatchNormArguments& arguments, const PoolWindow& window,
                                     const at::Tensor& counters, const Launcher& launcher);
BatchNormPoolGradients batch_norm_pool_backward(const BatchNormPoolBackwardArguments& arguments,
                                                const PoolWindow& window,
                                                const at::Tensor& counters,
                                                const Launcher& launcher);

/// By libtorch's operators, on any device.
BatchNormPoolResults batch_norm_pool_unfused(const BatchNormArguments& arguments,
                                             const PoolWindow& window);
BatchNormPoolGradients batch_norm_pool_backward_unfused(
    const BatchNormPoolBackwardArguments& arguments, const PoolWindow& window);

}  // namespace tensorpack::cuda
