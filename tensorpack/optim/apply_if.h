// SPDX-License-Identifier: Apache-2.0
// Updates that stay only under a condition that a program computes.
#pragma once

#include <functional>
#include <set>
#include <vector>

#include "tensorpack/optim/optimizer.h"

namespace tensorpack::detail {

/// function(), whose effects on variables stay only where `condition`, a 0-d boolean tensor, holds:
/// computed in any case, so that one recorded program serves both.
void keep_if(const at::Tensor& condition, const std::function<void()>& function);

/// optimizer.apply_gradients(gradients) under keep_if(). Before its first update of a variable the
/// optimizer may create others.
void apply_gradients_if(const at::Tensor& condition, Optimizer& optimizer,
                        const Gradients& gradients);

/// Collects the conditions of apply_gradients_if() on this thread while it lives: what an optimizer
/// around another one, however deep that is, has to know of it.
class [[nodiscard]] UpdateConditions {
 public:
  UpdateConditions();
  ~UpdateConditions();
  UpdateConditions(const UpdateConditions&) = delete;
  UpdateConditions& operator=(const UpdateConditions&) = delete;

  /// Whether all those of the variable hold, a 0-d boolean tensor; undefined if there was none.
  at::Tensor of(const Variable& variable) const;

  /// The gradients, in parts whose variables have the same conditions.
  std::vector<Gradients> divide(const Gradients& gradients) const;

 private:
  friend void apply_gradients_if(const at::Tensor&, Optimizer&, const Gradients&);
  // Of one update, which may be of some of the variables.
  struct Condition {
    at::Tensor holds;
    std::set<const Variable*> variables;
  };

  std::vector<Condition> conditions_;
  UpdateConditions* outer_;
};

}  // namespace tensorpack::detail
