// SPDX-License-Identifier: Apache-2.0
// A model's weights for others to use.
#pragma once

#include <filesystem>

#include "tensorpack/checkpoint/name_map.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// The variables that the model itself needs, by name: no slots of optimizers, no copies of other
/// towers. The tensors are those of the graph, and change with them.
NamedTensors weights_of(const Graph& graph);

/// Writes them to a `.safetensors` or an `.npz` file, under the names that `names` gives them.
void save_weights(const Graph& graph, const std::filesystem::path& path, const NameMap& names = {});

}  // namespace tensorpack
