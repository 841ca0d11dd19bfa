// SPDX-License-Identifier: Apache-2.0
// What is known of an input before any data has been seen: its name, shape and element type.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

namespace at {
class Tensor;
}

namespace tensorpack {

using Shape = std::vector<int64_t>;

/// The signature of one input. A dimension of -1 may differ from batch to batch.
struct TensorSpec {
  std::string name = {};
  Shape shape = {};
  c10::ScalarType dtype = c10::kFloat;
  /// The shape the graph is first built with, where the default (2 for an open first dimension, 64
  /// for other open ones) does not suit the model.
  Shape trial_shape = {};

  /// Throws an Error that names the input unless `value` fits shape and dtype.
  void check(const at::Tensor& value) const;

  /// A tensor of zeros that fits, to build the graph with before data has been seen.
  at::Tensor trial_value(c10::Device device) const;

  /// "image: Float [-1, 28, 28]".
  std::string to_string() const;
};

/// Throws unless names are non-empty, distinct and free of ':', '/' and spaces.
void check_signature(const std::vector<TensorSpec>& inputs);

}  // namespace tensorpack
