// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/executor.h"

#include "tensorpack/session/eager_executor.h"
#include "tensorpack/session/replay_executor.h"

namespace tensorpack {

std::unique_ptr<Executor> make_executor(ExecutorKind kind, Graph& graph,
                                        const ExecutorOptions& options) {
  if (kind == ExecutorKind::kEager) return std::make_unique<EagerExecutor>();
  return std::make_unique<ReplayExecutor>(graph, options);
}

}  // namespace tensorpack
