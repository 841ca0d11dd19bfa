// SPDX-License-Identifier: Apache-2.0
// A chain of layers with one input each.
//
//   Tensor logits = LinearWrap(image)
//                       .Conv2D("conv0", {.filters = 32, .kernel_size = 3})
//                       .apply(torch::relu)
//                       .FullyConnected("fc", {.units = 10});
#pragma once

#include <functional>
#include <utility>

#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/linear.h"
#include "tensorpack/models/pooling.h"

namespace tensorpack {

/// A tensor, and what to do with it next. For parity with Tensorpack: plain calls read as well.
class LinearWrap {
 public:
  explicit LinearWrap(at::Tensor tensor) : tensor_(std::move(tensor)) {}

  const at::Tensor& tensor() const { return tensor_; }
  operator at::Tensor() const { return tensor_; }  // NOLINT(google-explicit-constructor)

  /// function(tensor, arguments...)
  template <typename F, typename... Args>
  LinearWrap apply(F&& function, Args&&... args) const {
    return LinearWrap(std::invoke(std::forward<F>(function), tensor_, std::forward<Args>(args)...));
  }
  /// layer(name, tensor, arguments...)
  template <typename F, typename... Args>
  LinearWrap apply2(F&& layer, const std::string& name, Args&&... args) const {
    return LinearWrap(
        std::invoke(std::forward<F>(layer), name, tensor_, std::forward<Args>(args)...));
  }

  LinearWrap Conv2D(const std::string& name, Conv2DOptions options) const {
    return LinearWrap(tensorpack::Conv2D(name, tensor_, std::move(options)));
  }
  LinearWrap FullyConnected(const std::string& name, FullyConnectedOptions options) const {
    return LinearWrap(tensorpack::FullyConnected(name, tensor_, std::move(options)));
  }
  LinearWrap Linear(const std::string& name, LinearOptions options) const {
    return LinearWrap(tensorpack::Linear(name, tensor_, std::move(options)));
  }
  LinearWrap BatchNorm(const std::string& name, BatchNormOptions options = {}) const {
    return LinearWrap(tensorpack::BatchNorm(name, tensor_, std::move(options)));
  }
  LinearWrap BNReLU(const std::string& name) const {
    return LinearWrap(tensorpack::BNReLU(name, tensor_));
  }
  LinearWrap MaxPooling(const std::string& name, Size2D size, PoolingOptions options = {}) const {
    return LinearWrap(tensorpack::MaxPooling(name, tensor_, size, options));
  }
  LinearWrap AvgPooling(const std::string& name, Size2D size, PoolingOptions options = {}) const {
    return LinearWrap(tensorpack::AvgPooling(name, tensor_, size, options));
  }
  LinearWrap GlobalAvgPooling(const std::string& name) const {
    return LinearWrap(tensorpack::GlobalAvgPooling(name, tensor_));
  }
  LinearWrap Dropout(const std::string& name, DropoutOptions options = {}) const {
    return LinearWrap(tensorpack::Dropout(name, tensor_, options));
  }

 private:
  at::Tensor tensor_;
};

}  // namespace tensorpack
