// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/detail/tensor_checksum.h"

#include <fmt/ranges.h>

namespace tensorpack::detail {

Xxh64 begin_tensor_checksum(at::ScalarType dtype, at::IntArrayRef shape) {
  return Xxh64(xxh64(fmt::format("{} [{}]", c10::toString(dtype), fmt::join(shape, ", "))));
}

}  // namespace tensorpack::detail
