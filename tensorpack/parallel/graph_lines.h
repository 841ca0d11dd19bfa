// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// A line for each of the first `count` variables of the graph: its name, shape and type.
std::vector<std::string> describe_variables(const Graph& graph, size_t count);

/// A line for each operator that a run of `op` executes: its name and what it makes.
std::vector<std::string> describe_nodes(const Op& op, const Trace& trace);

}  // namespace tensorpack
