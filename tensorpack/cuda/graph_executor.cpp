// SPDX-License-Identifier: Apache-2.0
// The default executor on CUDA: recorded as for replay, launched as CUDA graphs.
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
  auto space = std::make_shared<const cuda::CaptureSpace>(device.index());
  return std::make_unique<ReplayExecutor>(
      graph, options,
      [space](const Op& op, const Trace& trace, const std::vector<std::string>& fetches) {
        return std::make_unique<cuda::GraphRunner>(op.name(), trace, fetches, space);
      });
}

}  // namespace tensorpack
