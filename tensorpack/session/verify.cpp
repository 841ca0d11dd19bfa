// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/verify.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>

#include <algorithm>
#include <map>
#include <optional>

#include "tensorpack/graph/checksum.h"
#include "tensorpack/graph/host_copy.h"
#include "tensorpack/graph/operator_watch.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/session/comparison.h"
#include "tensorpack/session/difference.h"
#include "tensorpack/session/kernel_settings.h"
#include "tensorpack/session/side_by_side.h"
#include "tensorpack/session/trace_change.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

// In the same memory format, and in no more memory than it takes.
at::Tensor other_batch(const at::Tensor& input) {
  if (input.numel() == 0) return input.clone();
  at::Tensor other = at::empty_like(input);
  if (input.dim() > 0 && input.size(0) > 1) {
    const int64_t rows = input.size(0);
    other.narrow(0, 1, rows - 1).copy_(input.narrow(0, 0, rows - 1));
    other.narrow(0, 0, 1).copy_(input.narrow(0, rows - 1, 1));
  } else {
    other.copy_(input.flatten().roll(1).reshape(input.sizes()));
  }
  return other.is_floating_point() ? other.mul_(0.875) : other;
}

// On CUDA kernels that add up in any order make a function differ from itself by this.
constexpr double kNoiseOfCuda = 1e-2;
// By what weights are moved, in turn, to see what rounding makes of a step.
constexpr double kOffsets[] = {0x1p-14, -0x1p-14, 0x1p-15, -0x1p-15};

// Notices variables that a function writes through pointers, which no operator shows.
class HostWrites {
 public:
  explicit HostWrites(Graph& graph) {
    for (const Variable& variable : graph.variables().all()) {
      if (variable.tensor.is_cpu()) before_.emplace(&variable, checksum(variable.tensor));
    }
  }

  // A variable that changed though no operator wrote it, or nullptr.
  const Variable* find(const StateGuard& guard) const {
    const auto& touched = guard.touched();
    for (const auto& [variable, sum] : before_) {
      const bool is_touched = std::find(touched.begin(), touched.end(), variable) != touched.end();
      if (!is_touched && checksum(variable->tensor) != sum) return variable;
    }
    return nullptr;
  }

 private:
  std::map<const Variable*, uint64_t> before_;
};

// On what function and program disagree, and where the function did something else.
struct Disagreement {
  std::string what = {};         // empty if they agree
  std::string where = {};        // empty if only the results differ
  std::string replacement = {};  // an operator of the program that is not what it replaced
};

NamedTensors written_variables(const StateGuard& guard) {
  NamedTensors variables;
  for (const Variable* variable : guard.touched()) {
    variables.emplace(variable->name, variable->tensor.detach());
  }
  return variables;
}

class Verification {
 public:
  Verification(Graph& graph, const LoweredOp& program, const MakeBatch& make_batch,
               StateGuard& guard)
      : graph_(graph), program_(program), op_(program.op), guard_(guard), make_batch_(make_batch) {}

  void run() {
    Disagreement found = compare();
    if (found.what.empty()) return;
    // The last word: with kernels that repeat themselves, which cost cuDNN some time to choose.
    const RepeatableKernels repeatable(op_.device());
    if (op_.device().is_cuda()) found = compare();
    if (found.what.empty()) return;
    if (found.where.empty()) found.where = first_node_that_differs();
    fail(found);
  }

 private:
  using Suspects = std::vector<Difference>;

  Disagreement compare() {
    guard_.restore();
    const HostWrites host_writes(graph_);
    Outcome function = run_function();
    if (const Variable* variable = host_writes.find(guard_)) {
      return {.what = "the variable '" + variable->name + "'",
              .where = "a write to it that no operator made"};
    }
    const NamedTensors start = saved_variables();
    if (compares_all_outputs_) {
      const std::string what = first_output_that_differs(function);
      if (!what.empty()) {
        return {.what = what,
                .where = change_between(program_.recorded, record().recording.trace).where};
      }
    }
    const auto runner = program_.lowering.make_runner(op_, program_.optimized, program_.fetches);
    Outcome program = run_program(*runner);
    Suspects suspects = compare(function, program, start);
    if (suspects.empty()) {
      guard_.restore();
      return {};
    }
    Disagreement found{.what = describe(suspects[0])};
    const Noise noise{.share = op_.device().is_cuda() ? kNoiseOfCuda : 0};
    const size_t beyond_tolerance = suspects.size();
    suspects = still_beyond(noise, suspects, function, program, start);
    logging::debug("Op '{}': of {} results {} differ, {} by more than usual noise.", op_.name(),
                   function.outputs.size() + function.variables.size(), beyond_tolerance,
                   suspects.size());
    function = part_of(function, suspects);
    program = kept(part_of(program, suspects));

    const TraceChange change = change_between(program_.recorded, record().recording.trace);
    if (change.kind >= TraceChange::Kind::kOperators) found.where = change.where;
    if (!found.where.empty()) return found;
    if (op_.device().is_cpu()) {
      const std::optional<std::string> difference =
          difference_in_operators(suspects, function, program, start);
      guard_.restore();
      if (difference == "") return {};
      found.replacement = difference.value_or("");
    }
    suspects = beyond_rounding(std::move(suspects), function, program, start, noise, *runner);
    found.what = suspects.empty() ? "" : describe(suspects[0]);
    return found;
  }

  // The first operator of the program that is wrong; "" if all are right, and with them the
  // program. Nothing if that cannot be told. See Note [Side by side].
  std::optional<std::string> difference_in_operators(const Suspects& suspects,
                                                     const Outcome& function,
                                                     const Outcome& program,
                                                     const NamedTensors& start) const {
    const PhaseLog phase(op_.name(), op_.device(), "comparing operators");
    // The program must do what its operators do, and those what the function's do. Kernels of the
    // CPU repeat themselves: but for the kernels, nothing differs by rounding.
    const auto alone = run_nodes(program_.optimized, suspects);
    if (!alone || !compare(alone->outcome, program, start).empty()) return std::nullopt;
    Trace plain = program_.recorded;
    Lowering(PassSwitches::none()).optimize(op_, plain, program_.fetches);
    const auto reference = run_nodes(plain, suspects);
    if (!reference || !compare(function, reference->outcome, start).empty()) {
      return std::nullopt;
    }
    return reference->difference;
  }

  struct NodeByNode {
    Outcome outcome = {};
    std::string difference = {};
  };
  // A trace, with the program's operators beside its own. Of the results, those with these names.
  std::optional<NodeByNode> run_nodes(const Trace& trace, const Suspects& names) const {
    set_up(/*offset=*/0);
    const Unwatched unwatched;
    const auto run = run_side_by_side(trace, program_.optimized, make_batch_(), program_.fetches);
    if (!run) return std::nullopt;
    Outcome outcome{.variables = written_variables(guard_)};
    for (size_t i = 0; i < run->outputs.size(); ++i) {
      outcome.outputs.emplace(program_.fetches[i], run->outputs[i]);
    }
    return NodeByNode{kept(part_of(outcome, names)), run->difference};
  }

  // Those of the differences that rounding does not explain.
  Suspects beyond_rounding(Suspects suspects, const Outcome& function, const Outcome& program,
                           const NamedTensors& start, Noise noise, ProgramRunner& runner) const {
    // Kernels of the CPU repeat themselves: a function that does not has state of its own.
    const bool repeats = op_.device().is_cuda() || suspects.empty() ||
                         compare(function, run_function(0, &suspects), start).empty();
    if (!repeats) return suspects;
    for (double offset : kOffsets) {
      if (suspects.empty()) break;
      widen(noise.of_function, function, run_function(offset, &suspects), op_.device());
      widen(noise.of_program, program, kept(part_of(run_program(runner, offset), suspects), offset),
            op_.device());
      suspects = still_beyond(noise, suspects, function, program, start);
    }
    return suspects;
  }

  Suspects compare(const Outcome& function, const Outcome& program,
                   const NamedTensors& start) const {
    const PhaseLog phase(op_.name(), op_.device(), "comparing");
    return differences(function, program, start, op_.device());
  }

  Suspects still_beyond(const Noise& noise, const Suspects& suspects, const Outcome& function,
                        const Outcome& program, const NamedTensors& start) const {
    const PhaseLog phase(op_.name(), op_.device(), "comparing with noise");
    return beyond(noise, part_of(function, suspects), part_of(program, suspects), start,
                  op_.device());
  }

  // Its results; if `names` is given, those alone.
  Outcome run_function(double offset = 0, const Suspects* names = nullptr) const {
    set_up(offset);
    const PhaseLog phase(op_.name(), op_.device(), "running the function to verify");
    Outcome outcome;
    const std::vector<std::string> compared = compared_outputs();
    const NamedTensors outputs = op_.run_body(make_batch_(), compared);
    for (const std::string& name : compared) {
      const auto found = outputs.find(name);
      if (found != outputs.end()) outcome.outputs.insert(*found);
    }
    outcome.variables = written_variables(guard_);
    if (names != nullptr) outcome = part_of(outcome, *names);
    return kept(std::move(outcome), offset);
  }

  // Every run starts here, from the saved state. Weights that are a little larger or smaller round
  // everything anew: how much the results differ by that is how well they are defined.
  void set_up(double offset) const {
    guard_.restore();
    if (offset == 0) return;
    for (const Variable* variable : guard_.touched()) {
      if (is_moved(*variable)) variable->tensor.detach().mul_(1 + offset);
    }
  }

  // To last while something else runs, without the offset it started with.
  Outcome kept(Outcome outcome, double offset = 0) const {
    const PhaseLog phase(op_.name(), op_.device(), "keeping results");
    const Unwatched unwatched;
    for (auto& [name, value] : outcome.outputs) value = host_copy(value);
    for (auto& [name, value] : outcome.variables) {
      const Variable& variable = graph_.variables().at(name);
      if (offset != 0 && is_moved(variable)) {
        value = value - guard_.saved(variable).to(value.device()) * offset;
      }
      value = host_copy(value);
    }
    guard_.restore();
    return outcome;
  }

  static bool is_moved(const Variable& variable) {
    return variable.is_trainable() && variable.tensor.is_floating_point();
  }

  // Every layer has an output, and all together are as large as the activations of the model: the
  // smallest suffice, because they depend on the others.
  std::vector<std::string> compared_outputs() const {
    std::vector<std::string> names = program_.fetches;
    if (!compares_all_outputs_) return names;
    constexpr int64_t kEnough = int64_t{1} << 24;
    std::vector<std::pair<int64_t, std::string>> by_size;
    for (const auto& [name, id] : program_.recorded.outputs) {
      by_size.emplace_back(c10::multiply_integers(program_.recorded.values[id].sizes), name);
    }
    std::sort(by_size.begin(), by_size.end());
    int64_t elements = 0;
    for (const auto& [size, name] : by_size) {
      elements += size;
      if (elements > kEnough) break;
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    }
    return names;
  }

  // Among those that are not fetched: "the tensor 'cost'", or "".
  std::string first_output_that_differs(const Outcome& function) const {
    const std::vector<std::string> names = compared_outputs();
    const Lowering plain(PassSwitches::none());
    Trace trace = program_.recorded;
    plain.optimize(op_, trace, names);
    const std::vector<at::Tensor> values = [&] {
      const Unwatched unwatched;
      return plain.make_runner(op_, trace, names)->run(make_batch_());
    }();
    Outcome program;
    for (size_t i = 0; i < names.size(); ++i) program.outputs.emplace(names[i], values[i]);
    const Suspects found = differences(function, program, {}, op_.device());
    guard_.restore();
    return found.empty() ? "" : describe(found[0]);
  }

  // Its results, and the variables themselves: until something else runs.
  Outcome run_program(ProgramRunner& runner, double offset = 0) const {
    const PhaseLog phase(op_.name(), op_.device(), "running the program to verify");
    const Unwatched unwatched;
    const std::vector<at::Tensor> inputs = make_batch_();
    std::vector<at::Tensor> values;
    for (int runs = 0; runs < runner.runs_until_settled(); ++runs) {
      set_up(offset);
      if (runs > 0) put_back(inputs);
      values = runner.run(inputs);
    }
    runner.give_back_memory();  // the function may run next
    Outcome outcome{.variables = written_variables(guard_)};
    for (size_t i = 0; i < values.size(); ++i) {
      outcome.outputs.emplace(program_.fetches[i], values[i]);
    }
    return outcome;
  }

  // A program may write to its inputs.
  void put_back(const std::vector<at::Tensor>& inputs) const {
    const std::vector<at::Tensor> batch = make_batch_();
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(batch[i]);
  }

  RecordedOp record(bool keep_results = false) const {
    RecordedOp recorded = record_op(graph_, op_, make_batch_(), keep_results);
    guard_.restore();
    return recorded;
  }

  NamedTensors saved_variables() const {
    NamedTensors saved;
    for (const Variable* variable : guard_.touched()) {
      saved.emplace(variable->name, guard_.saved(*variable));
    }
    return saved;
  }

  std::string first_node_that_differs() const {
    const RecordedOp again = record(/*keep_results=*/true);
    std::string place = difference_in_results(program_.recorded, again.recording, make_batch_());
    guard_.restore();
    return place;
  }

  [[noreturn]] void fail(const Disagreement& found) const {
    TP_CHECK(!found.where.empty(), "verify '" + op_.name() + "'",
             "the program and the function disagree on {} for another batch, though every recorded "
             "operator agrees: what the library made of them is wrong{}. Please report it; "
             "ExecutorKind::kEager runs without.",
             found.what, found.replacement.empty() ? "" : ", first at " + found.replacement);
    throw make_error(
        "verify '" + op_.name() + "'",
        "the recorded program and the function disagree on {} for another batch; first at {}. "
        "Likely causes: a value read or written on the host (data_ptr, accessor, a member variable "
        "that changes), or a kernel outside libtorch's dispatcher. Keep values in tensors and "
        "variables, or use ExecutorKind::kEager.",
        found.what, found.where);
  }

  Graph& graph_;
  const LoweredOp& program_;
  const Op& op_;
  StateGuard& guard_;
  // On CUDA a first step takes long enough, and rounding differs from run to run.
  const bool compares_all_outputs_ =
      program_.compares_all_outputs && !program_.op.device().is_cuda();
  const MakeBatch& make_batch_;
};

// What a recording computes, by libtorch's kernels.
Outcome outcome_of(const Op& op, Trace trace, const std::vector<std::string>& outputs,
                   const std::vector<at::Tensor>& inputs, const StateGuard& guard) {
  guard.restore();
  const Unwatched unwatched;
  const Lowering plain(PassSwitches::none());
  plain.optimize(op, trace, outputs);
  const std::vector<at::Tensor> values = plain.make_runner(op, trace, outputs)->run(inputs);
  Outcome outcome{.variables = written_variables(guard)};
  for (size_t i = 0; i < outputs.size(); ++i) outcome.outputs.emplace(outputs[i], values[i]);
  for (auto* tensors : {&outcome.outputs, &outcome.variables}) {
    for (auto& [name, value] : *tensors) value = host_copy(value);
  }
  guard.restore();
  return outcome;
}

}  // namespace

std::vector<at::Tensor> another_batch(const std::vector<at::Tensor>& inputs) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> batch;
  for (const at::Tensor& input : inputs) batch.push_back(other_batch(input.detach()));
  return batch;
}

bool compute_the_same(const Op& op, const Trace& a, const Trace& b,
                      const std::vector<std::string>& outputs, const MakeBatch& make_batch,
                      StateGuard& guard) {
  at::NoGradGuard no_grad;
  const RepeatableKernels repeatable(op.device());
  guard.save_what_is_written_by(a);
  guard.save_what_is_written_by(b);
  const Outcome first = outcome_of(op, a, outputs, make_batch(), guard);
  const Outcome second = outcome_of(op, b, outputs, make_batch(), guard);
  if (!op.device().is_cpu()) return differences(first, second, {}, op.device()).empty();
  const auto same = [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.sizes() == other.second.sizes() &&
           have_same_bits(one.second, other.second);
  };
  const auto are_same = [&](const NamedTensors& one, const NamedTensors& other) {
    return std::equal(one.begin(), one.end(), other.begin(), other.end(), same);
  };
  return are_same(first.outputs, second.outputs) && are_same(first.variables, second.variables);
}

void verify(Graph& graph, const LoweredOp& program, const MakeBatch& make_batch,
            StateGuard& guard) {
  at::NoGradGuard no_grad;
  Verification(graph, program, make_batch, guard).run();
}

}  // namespace tensorpack
