// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include "tensorpack/utils/hash.h"

namespace tensorpack::detail {

/// The checksum of a tensor, to which its bytes are to be added. Its type and shape count too: the
/// same bytes read as another type are other values.
Xxh64 begin_tensor_checksum(at::ScalarType dtype, at::IntArrayRef shape);

}  // namespace tensorpack::detail
