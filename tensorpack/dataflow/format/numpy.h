// SPDX-License-Identifier: Apache-2.0
// Arrays of NumPy as data.
//
//   FromTensors(read_numpy("train.npz", {"x", "y"})) | shuffle() | batch(128)
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// The arrays of these names in an npz file, whole; or the only one of an npy file, which has no
/// name.
std::vector<at::Tensor> read_numpy(const std::filesystem::path& path,
                                   const std::vector<std::string>& names = {});

/// Writes the rest of the pass of `flow`, whole or not at all: component i of all datapoints,
/// stacked, as the array of the i-th name of an npz file. Returns the number of datapoints. They
/// are kept in memory until the end.
int64_t save_npz(DataFlow& flow, const std::filesystem::path& path,
                 const std::vector<std::string>& names);

}  // namespace tensorpack
