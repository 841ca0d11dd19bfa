// SPDX-License-Identifier: Apache-2.0
// A chain of layers with one input each.
//
//   Tensor logits = LinearWrap(image)
//                       .Conv2D("conv0", {.filters = 32, .kernel_size = 3})
//                       .apply(torch::relu)
//                       .FullyConnected("fc", {.units = 10});
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/models/attention.h"
#include "tensorpack/models/batch_norm.h"
#include "tensorpack/models/conv1d.h"
#include "tensorpack/models/conv2d.h"
#include "tensorpack/models/conv2d_transpose.h"
#include "tensorpack/models/dropout.h"
#include "tensorpack/models/embedding.h"
#include "tensorpack/models/fully_connected.h"
#include "tensorpack/models/linear.h"
#include "tensorpack/models/nonlinear.h"
#include "tensorpack/models/norm.h"
#include "tensorpack/models/pooling.h"
#include "tensorpack/models/upsample.h"

namespace tensorpack {

/// A tensor, and what to do with it next: every layer that makes one tensor of one. For parity with
/// Tensorpack: plain calls read as well.
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

  LinearWrap Conv1D(const std::string& name, Conv1DOptions options) const {
    return LinearWrap(tensorpack::Conv1D(name, tensor_, std::move(options)));
  }
  LinearWrap Conv2D(const std::string& name, Conv2DOptions options) const {
    return LinearWrap(tensorpack::Conv2D(name, tensor_, std::move(options)));
  }
  LinearWrap DepthwiseConv2D(const std::string& name, DepthwiseConv2DOptions options) const {
    return LinearWrap(tensorpack::DepthwiseConv2D(name, tensor_, std::move(options)));
  }
  LinearWrap Conv2DTranspose(const std::string& name, Conv2DTransposeOptions options) const {
    return LinearWrap(tensorpack::Conv2DTranspose(name, tensor_, std::move(options)));
  }
  LinearWrap FullyConnected(const std::string& name, FullyConnectedOptions options) const {
    return LinearWrap(tensorpack::FullyConnected(name, tensor_, std::move(options)));
  }
  LinearWrap Linear(const std::string& name, LinearOptions options) const {
    return LinearWrap(tensorpack::Linear(name, tensor_, std::move(options)));
  }
  LinearWrap Embedding(const std::string& name, EmbeddingOptions options) const {
    return LinearWrap(tensorpack::Embedding(name, tensor_, std::move(options)));
  }
  LinearWrap MaxPooling(const std::string& name, Size2D size,
                        MaxPoolingOptions options = {}) const {
    return LinearWrap(tensorpack::MaxPooling(name, tensor_, size, std::move(options)));
  }
  LinearWrap AvgPooling(const std::string& name, Size2D size,
                        AvgPoolingOptions options = {}) const {
    return LinearWrap(tensorpack::AvgPooling(name, tensor_, size, std::move(options)));
  }
  LinearWrap GlobalAvgPooling(const std::string& name) const {
    return LinearWrap(tensorpack::GlobalAvgPooling(name, tensor_));
  }
  LinearWrap FixedUnPooling(const std::string& name, Size2D shape,
                            FixedUnPoolingOptions options = {}) const {
    return LinearWrap(tensorpack::FixedUnPooling(name, tensor_, shape, std::move(options)));
  }
  LinearWrap BilinearUpSample(const std::string& name, Size2D factor) const {
    return LinearWrap(tensorpack::BilinearUpSample(name, tensor_, factor));
  }
  LinearWrap BatchNorm(const std::string& name, BatchNormOptions options = {}) const {
    return LinearWrap(tensorpack::BatchNorm(name, tensor_, std::move(options)));
  }
  LinearWrap BatchRenorm(const std::string& name, BatchRenormOptions options) const {
    return LinearWrap(tensorpack::BatchRenorm(name, tensor_, std::move(options)));
  }
  LinearWrap BNReLU(const std::string& name) const {
    return LinearWrap(tensorpack::BNReLU(name, tensor_));
  }
  LinearWrap BNReLU() const { return LinearWrap(tensorpack::BNReLU(tensor_)); }
  LinearWrap LayerNorm(const std::string& name, LayerNormOptions options = {}) const {
    return LinearWrap(tensorpack::LayerNorm(name, tensor_, std::move(options)));
  }
  LinearWrap InstanceNorm(const std::string& name, InstanceNormOptions options = {}) const {
    return LinearWrap(tensorpack::InstanceNorm(name, tensor_, std::move(options)));
  }
  LinearWrap GroupNorm(const std::string& name, GroupNormOptions options = {}) const {
    return LinearWrap(tensorpack::GroupNorm(name, tensor_, std::move(options)));
  }
  LinearWrap Dropout(const std::string& name, DropoutOptions options = {}) const {
    return LinearWrap(tensorpack::Dropout(name, tensor_, std::move(options)));
  }
  LinearWrap PReLU(const std::string& name, PReLUOptions options = {}) const {
    return LinearWrap(tensorpack::PReLU(name, tensor_, std::move(options)));
  }
  LinearWrap Maxout(const std::string& name, int64_t units) const {
    return LinearWrap(tensorpack::Maxout(name, tensor_, units));
  }
  LinearWrap ConcatWith(const std::string& name, std::vector<at::Tensor> tensors,
                        int64_t dim) const {
    return LinearWrap(tensorpack::ConcatWith(name, tensor_, std::move(tensors), dim));
  }
  LinearWrap MultiHeadAttention(const std::string& name, MultiHeadAttentionOptions options) const {
    return LinearWrap(tensorpack::MultiHeadAttention(name, tensor_, std::move(options)));
  }

 private:
  at::Tensor tensor_;
};

}  // namespace tensorpack
