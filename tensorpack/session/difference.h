// SPDX-License-Identifier: Apache-2.0
// Where two runs of a function part.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// Copies of the tensors on a device, even of those that are there.
std::vector<at::Tensor> copies_on(c10::Device device, const std::vector<at::Tensor>& tensors);

/// "node 3, aten::add.Tensor in scope 'fc'"
std::string place_of(const Node& node, size_t index);

/// Runs the trace node by node and compares with what the nodes of an equal recording gave, on the
/// same inputs, which may be written to; "" if all agree.
std::string difference_in_results(const Trace& trace, const Recording& recording,
                                  const std::vector<at::Tensor>& inputs);

}  // namespace tensorpack
