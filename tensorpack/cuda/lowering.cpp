// SPDX-License-Identifier: Apache-2.0
// How programs run on CUDA: recorded as for replay, launched as CUDA graphs.
#include "tensorpack/session/lowering.h"

#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <future>
#include <map>
#include <memory>

#include "tensorpack/cuda/compile_ahead.h"
#include "tensorpack/cuda/convolutions.h"
#include "tensorpack/cuda/first_choice.h"
#include "tensorpack/cuda/graph_runner.h"
#include "tensorpack/cuda/jit.h"
#include "tensorpack/cuda/passes/passes.h"
#include "tensorpack/cuda/side_stream.h"
#include "tensorpack/cuda/update_kernels.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/phase_log.h"

namespace tensorpack {
namespace {

class CudaLowering final : public Lowering {
 public:
  // Opening the compiler takes a while: beside the first recording.
  explicit CudaLowering(PassSwitches switches)
      : Lowering(switches),
        opening_(std::async(std::launch::async, [] { cuda::obstacle_to_compiling(); })) {}

  void optimize(const Op& op, Trace& trace,
                const std::vector<std::string>& fetches) const override {
    if (!op.device().is_cuda()) return Lowering::optimize(op, trace, fetches);
    cuda::optimize(trace, fetches, switches(), much_memory(op));
    overlap_exchanges(trace);
    const c10::cuda::CUDAGuard on_device(op.device());
    const PhaseLog phase(op.name(), op.device(), "listing kernels");
    compiling_ = cuda::compile_ahead(trace, [device = op.device()] {
      c10::cuda::set_device(device.index());
      cudaFree(nullptr);  // the driver's context is there from the first call that needs it
    });
  }

  // Less than a sixteenth of a device leaves it empty, saved or not.
  int64_t much_memory(const Op& op) const override {
    if (!op.device().is_cuda()) return Lowering::much_memory(op);
    constexpr int64_t kParts = 16;
    const cudaDeviceProp* device = at::cuda::getDeviceProperties(op.device().index());
    return static_cast<int64_t>(device->totalGlobalMem) / kParts;
  }

  std::shared_ptr<OperatorWatch> watch_over_function(const Op& op) const override {
    const bool chooses =
        switches().cudnn_choice && op.device().is_cuda() && cuda::can_choose_convolutions();
    return chooses ? cuda::first_choice_of_convolutions() : nullptr;
  }

  std::unique_ptr<ProgramRunner> make_runner(
      const Op& op, const Trace& trace, const std::vector<std::string>& fetches) const override {
    if (!op.device().is_cuda()) return Lowering::make_runner(op, trace, fetches);
    if (compiling_.valid()) {
      const PhaseLog phase(op.name(), op.device(), "waiting for kernels");
      compiling_.get();
    }
    // Towers that run at once need memory and a stream of their own.
    auto& space = spaces_[{op.device().index(), op.state().tower}];
    if (!space) {
      space = std::make_shared<const cuda::CaptureSpace>(op.device().index(), switches().memsets);
    }
    return std::make_unique<cuda::GraphRunner>(op.name(), trace, fetches, op.state().generator,
                                               space);
  }

 private:
  std::future<void> opening_;
  mutable std::future<void> compiling_;  // kernels of the trace that was optimized last
  // By device and tower.
  mutable std::map<std::pair<c10::DeviceIndex, int>, std::shared_ptr<const cuda::CaptureSpace>>
      spaces_;
};

}  // namespace

std::unique_ptr<Lowering> make_cuda_lowering(PassSwitches switches) {
  cuda::link_update_kernels();
  cuda::link_side_stream();
  cuda::link_convolutions();
  return std::make_unique<CudaLowering>(switches);
}

}  // namespace tensorpack
