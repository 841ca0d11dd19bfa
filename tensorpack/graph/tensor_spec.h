// SPDX-License-Identifier: Apache-2.0
// What is known of an input before any data has been seen: its name, shape and element type.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

using Shape = std::vector<int64_t>;

/// The value of an input in a run that is not given it: a number for all of its elements, or the
/// result of a function of the shape:
///
///   TensorSpec{.name = "z", .shape = {-1, 100},
///              .default_value = [](const Shape& shape) { return torch::randn(shape); }}
///
/// The function makes a tensor on the CPU. It is called in every such run, and not recorded; what
/// it draws comes from the generator of the op, which checkpoints have.
class DefaultValue {
 public:
  DefaultValue() = default;
  DefaultValue(double number);  // NOLINT(google-explicit-constructor)
  template <typename F>
  requires std::is_invocable_r_v<at::Tensor, F&, const Shape&> DefaultValue(F function)  // NOLINT
      : function_(std::move(function)) {}

  explicit operator bool() const { return function_ != nullptr; }
  at::Tensor operator()(const Shape& shape, c10::ScalarType dtype) const;

 private:
  std::function<at::Tensor(const Shape& shape)> function_;
};

/// The signature of one input. A dimension of -1 may differ from batch to batch.
struct TensorSpec {
  std::string name = {};
  Shape shape = {};
  c10::ScalarType dtype = c10::kFloat;
  /// The shape the graph is first built with, where the default (2 for an open first dimension, 64
  /// for other open ones) does not suit the model.
  Shape trial_shape = {};
  /// Data need not have an input with a default, and predictors may leave it out though outputs
  /// depend on it. Its open dimensions then have the sizes that the inputs given have in the same
  /// place, or, where they do not tell, those of the trial shape.
  DefaultValue default_value = {};

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
