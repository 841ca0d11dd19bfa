// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/replay_executor.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <set>

#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/graph/recorder.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/verify.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr size_t kManyVariants = 8;

bool fits(const Trace& trace, const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& recorded = trace.values[trace.inputs[i]];
    if (inputs[i].sizes() != recorded.sizes || inputs[i].dtype() != recorded.options.dtype() ||
        inputs[i].device() != recorded.options.device()) {
      return false;
    }
  }
  return true;
}

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

// Verifying takes a second batch on the device; what fits without must train without.
void verify_if_it_fits(Graph& graph, const Op& op, const RecordedOp& recorded,
                       const std::vector<at::Tensor>& inputs, const StateGuard& guard) {
  try {
    verify(graph, op, recorded, inputs, guard);
  } catch (const c10::OutOfMemoryError&) {
    log::warning(
        "Op '{}' was not verified: {} has no room for another batch. Train a few steps with a "
        "smaller one if the tower function is new.",
        op.name(), op.device().str());
  }
}

}  // namespace

std::unique_ptr<ProgramRunner> make_replay_runner(const Op&, const Trace& trace,
                                                  const std::vector<std::string>& fetches) {
  return std::make_unique<ReplayRunner>(trace, fetches);
}

std::vector<at::Tensor> ReplayExecutor::run(const Op& op, const std::vector<at::Tensor>& inputs,
                                            const std::vector<std::string>& fetches) {
  Request& request = request_for(op, variant_for(op, inputs), fetches);
  const std::vector<at::Tensor> results = request.runner->run(inputs);
  std::vector<at::Tensor> values;
  values.reserve(fetches.size());
  for (const Request::Source& source : request.sources) {
    const at::Tensor& result = results[source.position];
    values.push_back(source.is_repeated ? result.clone() : result);
  }
  return values;
}

ReplayExecutor::Variant& ReplayExecutor::variant_for(const Op& op,
                                                     const std::vector<at::Tensor>& inputs) {
  std::deque<Variant>& variants = variants_[&op.state()];
  for (Variant& variant : variants) {
    if (fits(variant.trace, inputs)) return variant;
  }
  variants.push_back(record_variant(op, inputs));
  if (variants.size() == kManyVariants + 1) {
    std::vector<std::string> shapes;
    for (const at::Tensor& input : inputs) {
      shapes.push_back(fmt::format("[{}]", fmt::join(input.sizes(), ", ")));
    }
    log::warning(
        "Op '{}' was recorded for {} different input shapes, now {}. Each takes about the time of "
        "a "
        "few steps: pad the data to a few shapes, or run the op with ExecutorKind::kEager.",
        op.name(), variants.size(), fmt::join(shapes, ", "));
  }
  return variants.back();
}

ReplayExecutor::Variant ReplayExecutor::record_variant(const Op& op,
                                                       const std::vector<at::Tensor>& inputs) {
  ++recordings_;
  StateGuard guard(graph_);
  RecordedOp recorded = record_op(graph_, op, inputs);
  guard.add(recorded.recording.foreign);
  for (const std::string& remark : recorded.recording.remarks) {
    log::debug("Recording '{}': {}.", op.name(), remark);
  }
  // As large as a batch and its activations.
  recorded.inputs.clear();
  recorded.recording.outputs.clear();
  if (options_.verify) verify_if_it_fits(graph_, op, recorded, inputs, guard);
  return {std::move(recorded.recording.trace), {}, {}};
}

ReplayExecutor::Request& ReplayExecutor::request_for(const Op& op, Variant& variant,
                                                     const std::vector<std::string>& fetches) {
  for (Request& request : variant.requests) {
    if (request.fetches == fetches) return request;
  }
  const std::set<std::string> distinct(fetches.begin(), fetches.end());
  Request request{fetches, &runner_for(op, variant, {distinct.begin(), distinct.end()}), {}};
  std::vector<bool> seen(distinct.size(), false);
  for (const std::string& name : fetches) {
    const auto position = static_cast<size_t>(std::distance(distinct.begin(), distinct.find(name)));
    request.sources.push_back({position, seen[position]});
    seen[position] = true;
  }
  variant.requests.push_back(std::move(request));
  return variant.requests.back();
}

ProgramRunner& ReplayExecutor::runner_for(const Op& op, Variant& variant,
                                          const std::vector<std::string>& fetches) {
  std::unique_ptr<ProgramRunner>& runner = variant.runners[fetches];
  if (!runner) {
    const PhaseLog phase(op.name(), op.device(), "optimizing the program");
    Trace trace = variant.trace;
    optimize(trace, fetches);
    runner = make_runner_(op, trace, fetches);
  }
  return *runner;
}

}  // namespace tensorpack
