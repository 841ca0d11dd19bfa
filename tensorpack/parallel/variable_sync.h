// SPDX-License-Identifier: Apache-2.0
// Making all copies of variables equal.
#pragma once

#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/graph.h"

namespace tensorpack {

/// Copies every variable of the first tower to the replicas of the others. Returns how many copies
/// were made.
size_t copy_to_replicas(Graph& graph);

/// Gives every process the values that the first one has of the first `count` variables, replicas
/// excepted: many in one message.
void broadcast_variables(Graph& graph, size_t count, ProcessGroup& processes);

/// Gives all towers, and all processes if there are several, the averages of the gradients that
/// they have accumulated, each for itself. The update to come stays the same, and what the first
/// one has, and saves, is of all. All call it after the same step.
void average_accumulated_gradients(Graph& graph, ProcessGroup* processes);

}  // namespace tensorpack
