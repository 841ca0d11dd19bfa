// SPDX-License-Identifier: Apache-2.0
// Tensors in NumPy's npz format: np.load() reads what is written here, and what np.savez() and
// np.savez_compressed() write is read. Needs zlib.
#pragma once

#include <filesystem>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

/// Writes `tensors` to `path`, all or nothing; the same input always gives the same bytes.
///
/// Takes tensors of any device and strides, of the types that NumPy has. Throws Error for any other
/// (bfloat16: cast it to float32), and where the file cannot be written.
void write_npz(const std::filesystem::path& path, const NamedTensors& tensors);

/// Reads a whole file into CPU tensors. Throws Error that names the file and what is wrong with it;
/// arrays of Python objects are refused, because reading them would run code.
NamedTensors read_npz(const std::filesystem::path& path);

/// Reads the array of an npy file, what np.save() writes. Throws Error as read_npz() does.
at::Tensor read_npy(const std::filesystem::path& path);

}  // namespace tensorpack
