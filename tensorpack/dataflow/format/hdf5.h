// SPDX-License-Identifier: Apache-2.0
// Tensors in HDF5 files. Where the library was built without HDF5, both functions throw an Error
// that says so.
//
//   FromTensors(read_hdf5("train.h5", {"data", "label"})) | shuffle() | batch(128)
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// The data sets of these names, whole.
std::vector<at::Tensor> read_hdf5(const std::filesystem::path& path,
                                  const std::vector<std::string>& names);

/// Writes the rest of the pass of `flow`, whole or not at all: component i of all datapoints,
/// stacked, as the data set of the i-th name. Returns the number of datapoints. They are kept in
/// memory until the end.
int64_t save_hdf5(DataFlow& flow, const std::filesystem::path& path,
                  const std::vector<std::string>& names);

}  // namespace tensorpack
