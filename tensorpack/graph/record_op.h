// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/recorder.h"

namespace tensorpack {

struct RecordedOp {
  std::vector<at::Tensor> inputs = {};  // what it was recorded on
  Recording recording = {};
};

/// Runs the op's function once on the inputs, which are left as they were, and records it.
RecordedOp record_op(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs,
                     bool keep_results = false);

}  // namespace tensorpack
