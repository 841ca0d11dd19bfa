// SPDX-License-Identifier: Apache-2.0
// Arrays in the files of MATLAB 5 to 7.2; what later versions write is HDF5, see read_hdf5().
#pragma once

#include <filesystem>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// The arrays of real numbers in a file, by their names; anything else in it is left out.
/// Compressed ones need zlib.
///
/// Throws Error that names the file, the offset and what is wrong with it.
NamedTensors read_mat(const std::filesystem::path& path);

}  // namespace tensorpack
