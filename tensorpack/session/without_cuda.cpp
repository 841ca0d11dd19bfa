// SPDX-License-Identifier: Apache-2.0
// What stands in for cuda/ when libtorch has no CUDA.
#include "tensorpack/session/device_memory.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

std::unique_ptr<Lowering> make_cuda_lowering(PassSwitches) {
  throw make_error("session",
                   "ExecutorKind::kCudaGraph was asked for, but this library was built without "
                   "CUDA. Build it with a CUDA libtorch (cmake --preset cuda), or use "
                   "ExecutorKind::kDefault.");
}

std::vector<int64_t> peak_device_memory() { return {}; }

void reset_peak_device_memory() {}

}  // namespace tensorpack
