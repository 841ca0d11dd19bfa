// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

namespace tensorpack {

/// A copy in the memory of the host: a device may have no room for everything twice. That of a
/// tensor on a GPU is in page-locked memory, which goes back and forth several times as fast; as
/// long as that is not much at a time, because it is taken from all other programs.
at::Tensor host_copy(const at::Tensor& tensor);

}  // namespace tensorpack
