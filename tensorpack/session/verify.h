// SPDX-License-Identifier: Apache-2.0
// Recording an op, and the check that its program means the same as its function.
//
// Note [Verification]
// A recorded program repeats what the function did on one batch. Whatever the function decided on
// the host - a value read through a pointer, a counter in a member variable, a kernel that the
// dispatcher never saw - is frozen into it without a sign. So after recording, the function and the
// program run once more from the same state on another batch; variables and outputs must agree.
#pragma once

#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/state_guard.h"

namespace tensorpack {

struct RecordedOp {
  std::vector<at::Tensor> inputs = {};  // what it was recorded on
  Recording recording = {};
};

/// Runs the op's function once on the inputs, which are left as they were, and records it.
RecordedOp record_op(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs,
                     bool keep_results = false);

/// Compares function and program on a batch made from `inputs`. Throws an Error that names the
/// first node that differs. Runs from the state `guard` restores.
void verify(Graph& graph, const Op& op, const RecordedOp& recorded,
            const std::vector<at::Tensor>& inputs, const StateGuard& guard);

}  // namespace tensorpack
