// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/utils/tensor.h"

namespace tensorpack {

/// Tells libtorch of a write to the tensor that it did not see, as it counts those of its own
/// in-place operators: a backward pass that needs the old value then says so, and who keeps
/// something made of it makes that anew.
inline void count_write(const at::Tensor& tensor) {
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

}  // namespace tensorpack
