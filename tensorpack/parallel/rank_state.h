// SPDX-License-Identifier: Apache-2.0
// What processes that train together have each for themselves, and save and restore together.
#pragma once

#include "tensorpack/checkpoint/state_texts.h"
#include "tensorpack/distributed/process_group.h"
#include "tensorpack/graph/graph.h"

namespace tensorpack {

/// save_generators() of all processes: those of the first under their own names, of the others
/// behind "rank1/". All call it at the same time, and all get it.
StateTexts gather_generators(const Graph& graph, ProcessGroup& processes);

/// Puts back what gather_generators() had of this process. Streams that it has nothing of start
/// anew, and the log says so.
void restore_generators_of_rank(const Graph& graph, const StateTexts& states, int rank);

/// The global_seed() of the first process, in all of them. Each calls it at the same time.
uint64_t seed_of_chief(ProcessGroup& processes);

/// Broadcasts the states of the first process: what the others pass is not looked at.
StateTexts share_of_chief(const StateTexts& states, ProcessGroup& processes);

}  // namespace tensorpack
