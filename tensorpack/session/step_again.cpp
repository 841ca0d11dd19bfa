// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/step_again.h"

#include <ATen/ATen.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <set>

#include "tensorpack/graph/gradient_scopes.h"
#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/difference.h"
#include "tensorpack/session/function_scope.h"
#include "tensorpack/session/lowering.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/stats.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

OperatorOrigin origin_of(const Node& node) {
  LayerOfOperator place = layer_of_scope(node.scope);
  return {.op = node.op.operator_name().name,
          .layer = std::move(place.layer),
          .is_backward = place.is_backward};
}

// What numbers of a tensor are not finite.
struct Faults {
  bool nan = false;
  bool infinity = false;

  Faults& operator|=(const Faults& other) {
    nan |= other.nan;
    infinity |= other.infinity;
    return *this;
  }
};

Faults faults_of(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0) return {};
  at::NoGradGuard no_grad;
  if (tensor.isfinite().all().item<bool>()) return {};
  return {tensor.isnan().any().item<bool>(), tensor.isinf().any().item<bool>()};
}

// What of a trace is there before its first node runs.
Faults faults_before(const Trace& trace, const Value& value,
                     const std::vector<at::Tensor>& inputs) {
  for (size_t i = 0; i < trace.inputs.size(); ++i) {
    if (&trace.values[static_cast<size_t>(trace.inputs[i])] == &value) return faults_of(inputs[i]);
  }
  return value.is_persistent() ? faults_of(value.tensor) : Faults();
}

// Follows faults through the nodes of a recording.
class FaultSearch {
 public:
  FaultSearch(const Recording& recording, const std::vector<at::Tensor>& inputs)
      : recording_(recording), faults_(recording.trace.values.size()) {
    for (size_t i = 0; i < faults_.size(); ++i) {
      const Value& value = recording.trace.values[i];
      faults_[i] = faults_before(recording.trace, value, inputs);
      // A constant may be infinite on purpose.
      if (!value.name.empty() && (faults_[i].nan || faults_[i].infinity) && !before_) {
        before_ = NotFinite{.what = faults_[i].nan ? "NaN" : "infinity", .name = value.name};
      }
    }
  }

  std::optional<NotFinite> run() {
    if (before_) return before_;
    std::optional<NotFinite> infinity;
    for (size_t i = 0; i < recording_.trace.nodes.size(); ++i) {
      const Node& node = recording_.trace.nodes[i];
      Faults given;
      node.for_each_argument([&](ValueId id) { given |= faults_[static_cast<size_t>(id)]; });
      const Faults made = take_results(node, recording_.results[i]);
      if (made.nan && !given.nan) {
        NotFinite found{.what = "NaN", .origin = origin_of(node)};
        if (given.infinity && infinity) found.infinity = infinity->origin;
        return found;
      }
      if (made.infinity && !given.infinity && !infinity) {
        infinity = NotFinite{.what = "infinity", .origin = origin_of(node)};
      }
    }
    return infinity;
  }

 private:
  Faults take_results(const Node& node, const std::vector<at::Tensor>& values) {
    Faults all;
    size_t index = 0;
    for (const Result& result : node.results) {
      for (const ValueId id : result.ids) {
        if (index >= values.size()) return all;  // uninitialised memory has no results
        const Faults faults = faults_of(values[index++]);
        if (id != kNoValue) faults_[static_cast<size_t>(id)] = faults;
        all |= faults;
      }
    }
    return all;
  }

  const Recording& recording_;
  std::vector<Faults> faults_;  // of each value, as it is now
  std::optional<NotFinite> before_;
};

void check_is_program(const Op& op) {
  TP_CHECK(op && op.state().kind == Op::State::Kind::kProgram, "step_again",
           "only ops made by define() can be run operator by operator.");
}

void wait_for(c10::Device device) {
  if (device.is_cuda()) at::detail::getCUDAHooks().deviceSynchronize(device.index());
}

// Values that no node after each reads.
std::vector<std::vector<ValueId>> last_uses(const Trace& trace) {
  std::vector<std::vector<ValueId>> ends(trace.nodes.size());
  std::set<ValueId> seen;
  for (size_t i = trace.nodes.size(); i-- > 0;) {
    const auto note = [&](ValueId id) {
      if (seen.insert(id).second && !trace.values[static_cast<size_t>(id)].is_persistent()) {
        ends[i].push_back(id);
      }
    };
    trace.nodes[i].for_each_argument(note);
    trace.nodes[i].for_each_result(note);
  }
  return ends;
}

int64_t bytes_made(const Trace& trace, const Node& node) {
  int64_t bytes = 0;
  if (node.is_view) return 0;
  node.for_each_result([&](ValueId id) {
    const Value& value = trace.values[static_cast<size_t>(id)];
    if (value.kind == ValueKind::kComputed) bytes += std::max<int64_t>(0, value.storage_bytes);
  });
  return bytes;
}

}  // namespace

std::string OperatorOrigin::describe() const {
  std::string text = op;
  if (is_backward) text += " in the backward pass";
  if (!layer.empty()) text += fmt::format("{} layer '{}'", is_backward ? " of" : " in", layer);
  return text;
}

std::optional<NotFinite> find_not_finite(Session& session, const Op& op,
                                         const std::vector<at::Tensor>& inputs) {
  check_is_program(op);
  const FunctionScope scope(session.options().precision);
  const StateGuard guard(session.graph(), {op.state().generator});
  const RecordedOp recorded = record_op(session.graph(), op, inputs, /*keep_results=*/true);
  guard.restore();  // variables are looked at as they were
  return FaultSearch(recorded.recording, inputs).run();
}

std::vector<OperatorTime> time_operators(Session& session, const Op& op,
                                         const std::vector<at::Tensor>& inputs, int repetitions) {
  check_is_program(op);
  TP_CHECK(repetitions > 0, "time_operators", "there must be at least one repetition, got {}.",
           repetitions);
  const FunctionScope scope(session.options().precision);
  const c10::DeviceGuard on_device(op.device());  // fused kernels run on the current one
  StateGuard guard(session.graph(), {op.state().generator});
  Trace trace = record_op(session.graph(), op, inputs).recording.trace;
  const ExecutorKind executor = executor_of(session.options(), op);
  const PassSwitches switches = executor == ExecutorKind::kEager
                                    ? PassSwitches::none()
                                    : pass_switches(session.options(), op.device().type());
  const bool is_captured = op.device().is_cuda() && executor != ExecutorKind::kReplay &&
                           executor != ExecutorKind::kEager;
  const auto lowering =
      is_captured ? make_cuda_lowering(switches) : std::make_unique<Lowering>(switches);
  lowering->optimize(op, trace, {});
  guard.save_what_is_written_by(trace);

  const auto ends = last_uses(trace);
  std::vector<std::vector<double>> seconds(trace.nodes.size());
  for (int repetition = -1; repetition < repetitions; ++repetition) {  // -1 warms up
    guard.restore();
    std::vector<c10::IValue> slots = make_slots(trace, copies_on(op.device(), inputs));
    for (size_t i = 0; i < trace.nodes.size(); ++i) {
      const Timer timer;
      run_node(trace.nodes[i], slots);
      wait_for(op.device());
      if (repetition >= 0) seconds[i].push_back(timer.seconds());
      for (const ValueId id : ends[i]) slots[static_cast<size_t>(id)] = {};
    }
  }

  std::vector<OperatorTime> times;
  double start = 0;
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    times.push_back({origin_of(node), start, median(seconds[i]), bytes_made(trace, node)});
    start += times.back().seconds;
  }
  return times;
}

}  // namespace tensorpack
