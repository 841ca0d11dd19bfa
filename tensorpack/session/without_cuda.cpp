// SPDX-License-Identifier: Apache-2.0
// What stands in for cuda/ when libtorch has no CUDA.
#include "tensorpack/session/executor.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

std::unique_ptr<Executor> make_cuda_graph_executor(Graph&, const ExecutorOptions&) {
  throw make_error("session",
                   "ExecutorKind::kCudaGraph was asked for, but this library was built without "
                   "CUDA. Build it with a CUDA libtorch (cmake --preset cuda), or use "
                   "ExecutorKind::kDefault.");
}

}  // namespace tensorpack
