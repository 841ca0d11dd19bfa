// SPDX-License-Identifier: Apache-2.0
// Weights in a file of any kind that is known: to be moved between programs, not to go on from.
#pragma once

#include <filesystem>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// Whether `path` is a file with weights alone: none of a training that could go on, and no
/// directory.
bool is_weights_file(const std::filesystem::path& path);

/// The tensors of a file: `.npz` of NumPy, `.safetensors` of any library, the index
/// `*.safetensors.index.json` of a model that was divided into several, or a checkpoint or a
/// directory of those, as load_checkpoint() takes it, of which only the model's own variables are
/// given and not what training needs. Throws Error that names the file and what is wrong with it.
NamedTensors read_weights(const std::filesystem::path& path);

/// Writes tensors to a `.safetensors` or an `.npz` file, all or nothing.
void write_weights(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace tensorpack
