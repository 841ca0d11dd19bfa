// SPDX-License-Identifier: Apache-2.0
// Finding out that copies of variables which are trained alike are not equal any more.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/graph.h"

namespace tensorpack {

struct EqualVariablesOptions {
  /// The first so many variables of the graph, which all processes have.
  size_t count = 0;
  /// Null for this one alone.
  ProcessGroup* processes = nullptr;
  /// For the message.
  int64_t epoch = 0;
};

/// Compares what every step changes alike in all towers and processes, bit by bit: trainable and
/// global variables, but not accumulated gradients. Model and local variables may differ. Throws an
/// Error that names the variable, the tower or rank, and the epoch; that of ranks in all of them.
/// All processes call it at the same time.
void check_equal_variables(const Graph& graph, const EqualVariablesOptions& options);

}  // namespace tensorpack
