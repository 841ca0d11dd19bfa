// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/graph/graph.h"

namespace tensorpack {

/// Names, shapes and sizes of the trainable variables, and their total.
std::string variable_table(Graph& graph);

/// Logs variable_table(), or that nothing is trained by gradients.
void log_variables(Graph& graph);

}  // namespace tensorpack
