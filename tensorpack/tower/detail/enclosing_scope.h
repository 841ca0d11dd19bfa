// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "tensorpack/graph/variable_scope.h"

namespace tensorpack {

/// The VariableScope that is open where it is made, to be opened elsewhere: functions of ops are
/// called with none open.
class EnclosingScope {
 public:
  /// Calls `function` with that scope open.
  template <typename F>
  decltype(auto) call(F&& function) const {
    const VariableScope reuse(reuse_);
    std::optional<VariableScope> scope;
    if (!path_.empty()) scope.emplace(path_);
    return function();
  }

 private:
  std::string path_ = VariableScope::current_path();
  Reuse reuse_ = VariableScope::current_reuse();
};

}  // namespace tensorpack
