// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// The array in a file of Caffe's BlobProto (.binaryproto), as the means of data sets are
/// distributed: float32 [n, channels, height, width].
///
/// Throws Error that names the file if it is missing, cut off or of another format.
at::Tensor read_caffe_blob(const std::filesystem::path& path);

}  // namespace tensorpack
