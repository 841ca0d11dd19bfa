// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/executor.h"

#include "tensorpack/session/eager_executor.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/session/program_executor.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

std::unique_ptr<Executor> make_executor(ExecutorKind kind, Graph& graph,
                                        const ExecutorOptions& options) {
  if (kind == ExecutorKind::kEager) return std::make_unique<EagerExecutor>(options);
  const c10::Device device = graph.options().device;
  const bool captures =
      kind == ExecutorKind::kCudaGraph || (kind == ExecutorKind::kDefault && device.is_cuda());
  std::unique_ptr<Lowering> lowering = captures ? make_cuda_lowering(options.switches)
                                                : std::make_unique<Lowering>(options.switches);
  TP_CHECK(!captures || device.is_cuda(), "session",
           "ExecutorKind::kCudaGraph was asked for on the {}. Use ExecutorKind::kDefault, or put "
           "the graph on CUDA: GraphOptions{{.device = torch::kCUDA}}.",
           device.str());
  return std::make_unique<ProgramExecutor>(graph, options, std::move(lowering));
}

}  // namespace tensorpack
