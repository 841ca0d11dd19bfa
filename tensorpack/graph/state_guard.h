// SPDX-License-Identifier: Apache-2.0
// Runs that must leave no trace: building, recording, verifying.
#pragma once

#include "tensorpack/graph/saved_state.h"
#include "tensorpack/graph/variable_store.h"

namespace tensorpack {

class Graph;

/// Remembers the variables of a graph and the states of the default generators, and puts them back
/// when it is destroyed. A variable made meanwhile goes back to its first value.
class [[nodiscard]] StateGuard {
 public:
  explicit StateGuard(Graph& graph);
  ~StateGuard();
  StateGuard(const StateGuard&) = delete;
  StateGuard& operator=(const StateGuard&) = delete;

  /// Puts everything back now, and again at the end.
  void restore() const { state_.restore(); }
  /// What a variable will be put back to, in the memory of the host.
  at::Tensor saved(const Variable& variable) const { return state_.saved(variable.tensor); }
  /// Puts this back too: state the graph does not own.
  void add(const SavedState& state) { state_.add(state); }
  /// Called by the graph.
  void on_created(const Variable& variable);

 private:
  Graph& graph_;
  StateGuard* outer_;
  SavedState state_;
};

}  // namespace tensorpack
