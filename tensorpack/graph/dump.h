// SPDX-License-Identifier: Apache-2.0
// Three views of the nodes of a trace.
#pragma once

#include <string>

#include "tensorpack/graph/trace.h"

namespace tensorpack {

/// One line per node: results, operator, arguments, marks for writes and views, scope.
std::string dump_text(const Trace& trace);

/// A picture for `dot -Tsvg`: scopes are clusters, edges carry shapes.
std::string dump_graphviz(const Trace& trace);

/// The bytes of a GraphDef, which TensorBoard shows as a graph: scopes are groups, edges carry
/// shapes.
std::string dump_graph_def(const Trace& trace);

}  // namespace tensorpack
