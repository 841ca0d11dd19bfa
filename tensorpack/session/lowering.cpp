// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/lowering.h"

#include <ATen/ATen.h>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/program.h"

namespace tensorpack {
namespace {

class ReplayRunner final : public ProgramRunner {
 public:
  ReplayRunner(const Trace& trace, const std::vector<std::string>& fetches)
      : program_(trace, fetches) {}

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    std::vector<at::Tensor> values = program_.run(inputs);
    // Copied, because the program will write there again.
    for (at::Tensor& value : values) value = value.clone();
    return values;
  }

 private:
  Program program_;
};

}  // namespace

void Lowering::optimize(const Op&, Trace& trace, const std::vector<std::string>& fetches) const {
  tensorpack::optimize(trace, fetches);
  overlap_exchanges(trace);
}

std::unique_ptr<ProgramRunner> Lowering::make_runner(
    const Op&, const Trace& trace, const std::vector<std::string>& fetches) const {
  return std::make_unique<ReplayRunner>(trace, fetches);
}

}  // namespace tensorpack
