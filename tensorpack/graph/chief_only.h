// SPDX-License-Identifier: Apache-2.0
// Noticing that a variable is assigned in one of several processes alone.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "tensorpack/graph/variable_store.h"

namespace tensorpack {

/// While it lives, this thread runs code of the chief process that the other processes of the
/// training do not run: assigning what all of them have is an error. Scopes nest.
class [[nodiscard]] ChiefOnlyScope {
 public:
  /// `who` names the code for messages; `variables` are those of the training, of which only the
  /// chief has `own`. All must outlive the scope.
  ChiefOnlyScope(const std::function<std::string()>& who, const VariableStore& variables,
                 const std::set<const Variable*>& own);
  ~ChiefOnlyScope();
  ChiefOnlyScope(const ChiefOnlyScope&) = delete;
  ChiefOnlyScope& operator=(const ChiefOnlyScope&) = delete;

  /// Throws an Error that names the variable if a scope of its training is open. Not for the
  /// chief's own variables and for local ones, which processes have each for itself.
  static void check_assignable(const Variable& variable);
  /// The same for a number that is no variable.
  static void check_settable(const std::string& name);
  /// The same for a change that is announced to the graph of `variables`.
  static void check_announceable(const VariableStore& variables);

 private:
  bool protects(const Variable& variable) const;

  const std::function<std::string()>& who_;
  const VariableStore& variables_;
  const std::set<const Variable*>& own_;
  const ChiefOnlyScope* outer_;
};

}  // namespace tensorpack
