// SPDX-License-Identifier: Apache-2.0
// The default executor on CUDA: recorded as for replay, launched as CUDA graphs.
#include <map>
#include <memory>

#include "tensorpack/cuda/graph_runner.h"
#include "tensorpack/cuda/update_kernels.h"
#include "tensorpack/session/replay_executor.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

std::unique_ptr<Executor> make_cuda_graph_executor(Graph& graph, const ExecutorOptions& options) {
  const c10::Device device = graph.options().device;
  TP_CHECK(device.is_cuda(), "session",
           "ExecutorKind::kCudaGraph was asked for on the {}. Use ExecutorKind::kDefault, or put "
           "the graph on CUDA: GraphOptions{{.device = torch::kCUDA}}.",
           device.str());
  cuda::link_update_kernels();
  using Spaces = std::map<c10::DeviceIndex, std::shared_ptr<const cuda::CaptureSpace>>;
  return std::make_unique<ReplayExecutor>(
      graph, options,
      [spaces = std::make_shared<Spaces>()](
          const Op& op, const Trace& trace,
          const std::vector<std::string>& fetches) -> std::unique_ptr<ProgramRunner> {
        if (!op.device().is_cuda()) return make_replay_runner(op, trace, fetches);
        auto& space = (*spaces)[op.device().index()];
        if (!space) space = std::make_shared<const cuda::CaptureSpace>(op.device().index());
        return std::make_unique<cuda::GraphRunner>(op.name(), trace, fetches, space);
      });
}

}  // namespace tensorpack
