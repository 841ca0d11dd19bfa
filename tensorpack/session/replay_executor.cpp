// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/replay_executor.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/verify.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr size_t kManyVariants = 8;

bool fits(const std::vector<at::Tensor>& examples, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < examples.size(); ++i) {
    if (examples[i].sizes() != inputs[i].sizes() ||
        examples[i].scalar_type() != inputs[i].scalar_type() ||
        examples[i].device() != inputs[i].device()) {
      return false;
    }
  }
  return true;
}

}  // namespace

std::vector<at::Tensor> ReplayExecutor::run(const Op& op, const std::vector<at::Tensor>& inputs,
                                            const std::vector<std::string>& fetches) {
  Program& program = program_for(variant_for(op, inputs), fetches);
  std::vector<at::Tensor> values = program.run(inputs);
  for (at::Tensor& value : values) value = value.clone();  // the program will write there again
  return values;
}

ReplayExecutor::Variant& ReplayExecutor::variant_for(const Op& op,
                                                     const std::vector<at::Tensor>& inputs) {
  std::deque<Variant>& variants = variants_[&op.state()];
  for (Variant& variant : variants) {
    if (fits(variant.examples, inputs)) return variant;
  }
  variants.push_back(record_variant(op, inputs));
  if (variants.size() == kManyVariants + 1) {
    std::vector<std::string> shapes;
    for (const at::Tensor& input : inputs) {
      shapes.push_back(fmt::format("[{}]", fmt::join(input.sizes(), ", ")));
    }
    log::warning(
        "Op '{}' was recorded for {} different input shapes, now {}. Each takes about the time of a "
        "few steps: pad the data to a few shapes, or run the op with ExecutorKind::kEager.",
        op.name(), variants.size(), fmt::join(shapes, ", "));
  }
  return variants.back();
}

ReplayExecutor::Variant ReplayExecutor::record_variant(const Op& op,
                                                       const std::vector<at::Tensor>& inputs) {
  ++recordings_;
  StateGuard guard(graph_);
  const RecordedOp recorded = record_op(graph_, op, inputs);
  for (const std::string& remark : recorded.recording.remarks) {
    log::debug("Recording '{}': {}.", op.name(), remark);
  }
  if (options_.verify) {
    guard.restore();
    verify(graph_, op, recorded, guard);
  }
  return {recorded.inputs, std::move(recorded.recording.trace), {}};
}

Program& ReplayExecutor::program_for(Variant& variant, const std::vector<std::string>& fetches) {
  for (Variant::Entry& entry : variant.programs) {
    if (entry.fetches == fetches) return entry.program;
  }
  Trace trace = variant.trace;
  optimize(trace, fetches);
  variant.programs.push_back({fetches, Program(trace, fetches)});
  return variant.programs.back().program;
}

}  // namespace tensorpack
