// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAStream.h>

namespace tensorpack::cuda {

/// What is issued to `after` from now on waits for what was issued to `before`. Captured, it is an
/// edge of the graph.
inline void order(c10::cuda::CUDAStream before, c10::cuda::CUDAStream after) {
  at::cuda::CUDAEvent event;
  event.record(before);
  event.block(after);
}

}  // namespace tensorpack::cuda
