// SPDX-License-Identifier: Apache-2.0
// The random numbers a training would draw next, as text for a checkpoint.
#pragma once

#include "tensorpack/checkpoint/state_texts.h"
#include "tensorpack/graph/graph.h"

namespace tensorpack {

/// The states of all generators that ops of the graph draw from (dropout and the like), and of
/// libtorch's default ones, by name.
StateTexts save_generators(const Graph& graph);

/// Puts back what save_generators() gave; other entries are ignored. Throws Error for a state that
/// is damaged.
void restore_generators(const Graph& graph, const StateTexts& states);

}  // namespace tensorpack
