// SPDX-License-Identifier: Apache-2.0
// Functions of users that lock the variables of other graphs, as predictors of other trainings do.
#pragma once

#include <mutex>

namespace tensorpack {

class Graph;

/// While it lives, this thread may be in a function of a user, until whose end the variables of the
/// graph stay locked, by this thread or by the run that it does a part of.
class [[nodiscard]] KeptLocked {
 public:
  explicit KeptLocked(const Graph& graph);
  ~KeptLocked();
  KeptLocked(const KeptLocked&) = delete;
  KeptLocked& operator=(const KeptLocked&) = delete;

  const Graph& graph() const { return graph_; }
  const KeptLocked* outer() const { return outer_; }

 private:
  const Graph& graph_;
  const KeptLocked* outer_;
};

/// Locks the variables of `wanted`, of which `lock` is the lock. Throws Error rather than waiting
/// for a thread that itself waits for what this one keeps locked.
void lock_in_turn(std::unique_lock<std::recursive_mutex>& lock, const Graph& wanted);

}  // namespace tensorpack
