// SPDX-License-Identifier: Apache-2.0
// What stands between get_variable() and the variable.
#pragma once

#include <functional>
#include <string>

#include "tensorpack/graph/variable_scope.h"
#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Gets or makes the variable with these options.
using NextGetter = std::function<at::Tensor(VariableOptions options)>;

/// Answers get_variable() for the variable `name` (its path): calls `next`, perhaps with other
/// options, and returns what the caller is to use.
using VariableGetter = std::function<at::Tensor(const std::string& name, VariableOptions options,
                                                const NextGetter& next)>;

/// While it lives, `getter` answers every get_variable() on this thread. Scopes nest: the innermost
/// is asked first, and its `next` is the one around it.
class [[nodiscard]] VariableGetterScope {
 public:
  /// With `freezes_layers`, layers leave state of their own, such as moving averages, as it is.
  explicit VariableGetterScope(VariableGetter getter, bool freezes_layers = false);
  ~VariableGetterScope();
  VariableGetterScope(const VariableGetterScope&) = delete;
  VariableGetterScope& operator=(const VariableGetterScope&) = delete;

  /// Asks the getters in place, innermost first, and `last` behind them.
  static at::Tensor get(const std::string& name, VariableOptions options, const NextGetter& last);

  /// Whether getters are in place on this thread.
  static bool is_open();
  /// Whether one of them freezes layers.
  static bool freezes_layers();

 private:
  VariableGetter getter_;
  bool freezes_layers_;
  VariableGetterScope* outer_;
};

}  // namespace tensorpack
