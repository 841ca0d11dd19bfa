// SPDX-License-Identifier: Apache-2.0
// Runs that must leave no trace: building, recording, verifying.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tensorpack/graph/detail/saved_state.h"
#include "tensorpack/graph/kept_locked.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/trace.h"
#include "tensorpack/graph/variable_store.h"

namespace tensorpack {

class Graph;

using PreparationLock = std::unique_lock<std::recursive_mutex>;

/// Building, recording and verifying change generators and settings of the process: one thread at a
/// time does so, in all graphs. A thread that also locks the variables of a graph does that second.
[[nodiscard]] PreparationLock lock_preparation();
/// Holds nothing if another thread still prepares after so long.
[[nodiscard]] PreparationLock try_lock_preparation(std::chrono::milliseconds patience);

/// Puts back, when it is destroyed, what was changed on this thread while it lived: the variables
/// of the graph that operators wrote, saved before the first write to each, and `generators` with
/// libtorch's default one of the CPU. A variable made meanwhile goes back to its first value. While
/// it lives, no other thread prepares ops, or runs ops of this graph.
class [[nodiscard]] StateGuard {
 public:
  explicit StateGuard(Graph& graph, const std::vector<at::Generator>& generators = {});
  ~StateGuard();
  StateGuard(const StateGuard&) = delete;
  StateGuard& operator=(const StateGuard&) = delete;

  /// Puts everything back now, and again at the end.
  void restore() const;
  /// The variables that were written so far.
  const std::vector<const Variable*>& touched() const;
  /// What a variable will be put back to, in the memory of the host; undefined if it was not
  /// touched.
  at::Tensor saved(const Variable& variable) const;
  /// Saves the variables that a run of the trace would write.
  void save_what_is_written_by(const Trace& trace);
  /// Puts this back too: state the graph does not own.
  void add(const SavedState& state);

 private:
  class Watch;
  PreparationLock preparation_;
  std::unique_lock<std::recursive_mutex> variables_;
  KeptLocked kept_locked_;
  std::shared_ptr<Watch> watch_;
  std::optional<WatchScope> scope_;
};

}  // namespace tensorpack
