// SPDX-License-Identifier: Apache-2.0
// The function that builds one replica of a model.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tensorpack/graph/tensor_spec.h"

namespace tensorpack {

/// Any callable over N tensors that returns a tensor (the cost), several, or nothing:
///
///   TowerFunc f = [](Tensor image, Tensor label) { ... return cost; };
///
/// N is deduced, and compared with the input signature before anything runs. A callable over one
/// `const std::vector<Tensor>&` takes any number.
class TowerFunc {
 public:
  static constexpr int kAnyArity = -1;

  TowerFunc() = default;
  template <typename F>
  requires(!std::same_as<std::remove_cvref_t<F>, TowerFunc>)
      TowerFunc(F function);  // NOLINT(google-explicit-constructor): lambdas read like functions

  explicit operator bool() const { return function_ != nullptr; }
  int arity() const { return arity_; }

  /// Throws an Error naming both numbers unless the function can take these inputs.
  void check_arity(const std::vector<TensorSpec>& inputs) const;

  /// What the function returned: empty for void. Must run inside a TowerContext.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& inputs) const;

 private:
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> function_;
  int arity_ = kAnyArity;
};

}  // namespace tensorpack

#include "tensorpack/tower/detail/tower_func.h"
#include "tensorpack/utils/tensor.h"
