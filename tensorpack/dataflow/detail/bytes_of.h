// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// What the tensors of a datapoint hold. Sparse ones do not tell.
inline uint64_t bytes_of(const DataPoint& point) {
  uint64_t bytes = 0;
  for (const at::Tensor& tensor : point) {
    if (tensor.defined() && tensor.layout() == at::kStrided) bytes += tensor.nbytes();
  }
  return bytes;
}

}  // namespace tensorpack::detail
