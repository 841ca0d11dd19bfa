// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// The name, shape and type of a variable.
std::string describe_variable(const Variable& variable);

/// A line for each of the first `count` variables of the graph: its name, shape and type.
std::vector<std::string> describe_variables(const Graph& graph, size_t count);

/// A line for each operator that a run of `op` executes: its name, its arguments, tensors by the
/// order in which they appear and numbers by their values, and the shapes of what it makes. Nothing
/// in it depends on the process: devices are left out.
///
///   op 'train_op', in 'fc': aten::mul.Tensor(%3, 0.2) -> %4 [8, 16]
///
/// Constants of up to 256 elements, as numbers become that stand beside a tensor, count by their
/// values; larger ones may be data.
std::vector<std::string> describe_nodes(const Op& op, const Trace& trace);

}  // namespace tensorpack
