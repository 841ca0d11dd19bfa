// SPDX-License-Identifier: Apache-2.0
// Executes single nodes of a trace: used by passes that evaluate nodes once, and by verification.
#pragma once

#include <vector>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// A slot for every value, with variables, constants and these inputs in theirs.
std::vector<c10::IValue> make_slots(const Trace& trace, const std::vector<at::Tensor>& inputs);

/// Calls the node's operator below autograd. `slots` holds a tensor for every value that exists so
/// far, indexed by ValueId; results are stored there.
void run_node(const Node& node, std::vector<c10::IValue>& slots);

}  // namespace tensorpack
