// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "tensorpack/graph/graph.h"

namespace tensorpack {

/// What a run of `op` gives for the fetch `name`: a tensor the op names, one of its inputs, or a
/// variable. Throws an Error from `where` with the nearest names when there is none.
TensorSpec fetch_spec(const Graph& graph, const Op& op, const std::string& name,
                      std::string_view where);

}  // namespace tensorpack
