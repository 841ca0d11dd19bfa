// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/lowering.h"

#include <ATen/ATen.h>

#include "tensorpack/cpu/passes/passes.h"
#include "tensorpack/graph/kept_copies.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/utils/host_memory.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// For Recompute::kSome: no more than may be page-locked there.
constexpr int64_t kMostOnHost = int64_t{3} << 29;

class ReplayRunner final : public ProgramRunner {
 public:
  ReplayRunner(Trace trace, const std::vector<std::string>& fetches)
      : copies_(trace), program_(trace, fetches) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    const KeptCopies::Run run(copies_);
    std::vector<at::Tensor> values = program_.run(inputs);
    // Copied, because the program will write there again.
    for (at::Tensor& value : values) value = value.clone();
    return values;
  }

 private:
  KeptCopies copies_;
  Program program_;  // all but what makes them
};

void fuse_on_cpu(Trace& trace, const std::vector<std::string>& fetches,
                 const PassSwitches& options) {
  const size_t before = trace.nodes.size();
  int fused = 0;
  if (options.max_pool) fused += cpu::fuse_max_pool(trace);
  if (options.convolutions) fused += cpu::choose_convolutions(trace);
  if (fused == 0) return;
  eliminate_dead_code(trace, fetches);
  logging::info_once("{} became {} that kernels of ours run.",
                     counted(static_cast<int64_t>(before - trace.nodes.size()) + fused, "operator"),
                     fused);
}

}  // namespace

void Lowering::optimize(const Op& op, Trace& trace, const std::vector<std::string>& fetches) const {
  tensorpack::optimize(trace, fetches);
  if (op.device().is_cpu()) fuse_on_cpu(trace, fetches, switches_);
  overlap_exchanges(trace);
}

std::optional<ResultsOnHostOptions> Lowering::results_on_host(const Op& op) const {
  if (saves_memory(op)) {
    // The host must have room for the rest of the process, too.
    return ResultsOnHostOptions{.most_on_host = static_cast<int64_t>(host_memory() / 2)};
  }
  if (!is_for(op) || switches_.recompute != Recompute::kSome) return std::nullopt;
  return ResultsOnHostOptions{.share_on_device = kSomeShare,
                              .enough_on_device = much_memory(op),
                              .most_on_host = kMostOnHost};
}

std::unique_ptr<ProgramRunner> Lowering::make_runner(
    const Op&, const Trace& trace, const std::vector<std::string>& fetches) const {
  return std::make_unique<ReplayRunner>(trace, fetches);
}

}  // namespace tensorpack
