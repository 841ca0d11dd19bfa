// SPDX-License-Identifier: Apache-2.0
// Rewrites of a trace that keep its meaning. One file each; none depends on another.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// Keeps what the fetched outputs need, what writes a variable or a constant, what draws random
/// numbers (later draws depend on earlier ones), and what other towers wait for. Drops the other
/// outputs.
void eliminate_dead_code(Trace& trace, const std::vector<std::string>& fetches);

/// Computes once, now, every node that depends on nothing that changes from run to run.
void fold_constants(Trace& trace);

/// Makes views of variables and constants once: they stay valid because variables never move.
void fold_views(Trace& trace);

/// Computes equal pure nodes on equal arguments once.
void merge_common_subexpressions(Trace& trace);

/// All of the above, in a good order. A device may have passes of its own to follow.
void optimize(Trace& trace, const std::vector<std::string>& fetches);

/// Begins every exchange with other towers as early, and awaits it as late, as can be: meanwhile
/// the program goes on. Comes last: what it moves would be in the way of other passes.
void overlap_exchanges(Trace& trace);

}  // namespace tensorpack
