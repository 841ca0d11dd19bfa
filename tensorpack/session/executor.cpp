// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/executor.h"

#include "tensorpack/session/eager_executor.h"
#include "tensorpack/session/replay_executor.h"

namespace tensorpack {

std::unique_ptr<Executor> make_executor(ExecutorKind kind, Graph& graph,
                                        const ExecutorOptions& options) {
  if (kind == ExecutorKind::kDefault) {
    kind = graph.options().device.is_cuda() ? ExecutorKind::kCudaGraph : ExecutorKind::kReplay;
  }
  switch (kind) {
    case ExecutorKind::kEager:
      return std::make_unique<EagerExecutor>();
    case ExecutorKind::kCudaGraph:
      return make_cuda_graph_executor(graph, options);
    default:
      return std::make_unique<ReplayExecutor>(graph, options);
  }
}

}  // namespace tensorpack
