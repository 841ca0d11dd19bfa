// SPDX-License-Identifier: Apache-2.0
// Reader of the IDX format, in which MNIST and its relatives are distributed.
#pragma once

#include <filesystem>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The array of unsigned bytes in an IDX file, plain or compressed with gzip.
///
/// Throws Error that names the file if it is missing, cut off, too long or of another format.
at::Tensor read_idx(const std::filesystem::path& path);

}  // namespace tensorpack
