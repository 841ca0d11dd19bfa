// SPDX-License-Identifier: Apache-2.0
// Runs that must leave no trace: building, recording, verifying.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

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
  void restore();
  /// Called by the graph.
  void on_created(const Variable& variable);

 private:
  void save(const at::Tensor& tensor);

  Graph& graph_;
  StateGuard* outer_;
  std::vector<std::pair<at::Tensor, at::Tensor>> saved_;             // (variable, its value)
  std::vector<std::pair<at::Generator, at::Tensor>> generators_;     // (generator, its state)
};

}  // namespace tensorpack
