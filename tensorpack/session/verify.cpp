// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/verify.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <sstream>

#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Kernels may round differently from run to run; frozen values differ by far more.
constexpr double kTolerance = 1e-3;
// Where the function does not repeat itself, the program may be this much farther from it.
constexpr double kTimesNoise = 8;

// On CUDA the fastest kernels add up in any order, and a gradient that should be zero (of a bias
// before batch norm) is nothing but the rounding. While this lives, kernels repeat themselves.
class [[nodiscard]] RepeatableKernels {
 public:
  explicit RepeatableKernels(c10::Device device) : is_needed_(device.is_cuda()) {
    if (is_needed_) set(true, false, true, true);
  }
  ~RepeatableKernels() {
    if (is_needed_) set(algorithms_, benchmark_, cudnn_, warn_only_);
  }
  RepeatableKernels(const RepeatableKernels&) = delete;
  RepeatableKernels& operator=(const RepeatableKernels&) = delete;

 private:
  static void set(bool algorithms, bool benchmark, bool cudnn, bool warn_only) {
    at::Context& context = at::globalContext();
    context.setDeterministicAlgorithms(algorithms, warn_only);
    context.setBenchmarkCuDNN(benchmark);
    context.setDeterministicCuDNN(cudnn);
  }

  bool is_needed_;
  bool algorithms_ = at::globalContext().deterministicAlgorithms();
  bool warn_only_ = at::globalContext().deterministicAlgorithmsWarnOnly();
  bool benchmark_ = at::globalContext().benchmarkCuDNN();
  bool cudnn_ = at::globalContext().deterministicCuDNN();
};

double largest_magnitude(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  return at::nan_to_num(tensor.abs().to(at::kDouble)).max().item<double>();
}

// What two tensors may differ by.
struct Allowance {
  at::Tensor start = {};  // what a variable held before the run: its change is what must agree
  at::Tensor again = {};  // another result of the function, which may not repeat itself
};

double largest_difference(const at::Tensor& a, const at::Tensor& b) {
  return largest_magnitude(a - b);
}

bool is_equal(const at::Tensor& expected, const at::Tensor& value,
              const Allowance& allowance = {}) {
  if (!expected.defined() || !value.defined()) return expected.defined() == value.defined();
  if (expected.sizes() != value.sizes() || expected.scalar_type() != value.scalar_type()) {
    return false;
  }
  if (expected.layout() != at::kStrided) return is_equal(expected.to_dense(), value.to_dense());
  if (at::equal(expected, value)) return true;
  if (!expected.is_floating_point() && !expected.is_complex()) return false;
  if (!at::equal(at::isnan(expected), at::isnan(value))) return false;
  const double scale =
      largest_magnitude(allowance.start.defined() ? expected - allowance.start : expected);
  const double epsilon =
      expected.scalar_type() == at::kDouble || expected.scalar_type() == at::kComplexDouble
          ? std::numeric_limits<double>::epsilon()
          : std::numeric_limits<float>::epsilon();
  const double rounding = 4 * epsilon * largest_magnitude(expected);
  const double noise =
      allowance.again.defined() ? kTimesNoise * largest_difference(expected, allowance.again) : 0;
  return largest_difference(expected, value) <= kTolerance * scale + rounding + noise;
}

// Another batch with valid contents: the rows in another order, numbers a little smaller.
at::Tensor other_batch(const at::Tensor& input) {
  if (input.numel() == 0) return input;
  at::Tensor other = input.dim() > 0 && input.size(0) > 1
                         ? input.roll(1, 0)
                         : input.flatten().roll(1).reshape(input.sizes());
  if (other.is_floating_point()) other = other * 0.875;
  return other.clone();
}

std::vector<at::Tensor> copies_of(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.detach().clone());
  return copies;
}

NamedTensors variable_values(Graph& graph) {
  NamedTensors values;
  for (const Variable& variable : graph.variables().all()) {
    values.emplace(variable.name, variable.tensor.detach().clone());
  }
  return values;
}

// What a run gave and left behind.
struct Outcome {
  NamedTensors outputs = {};
  NamedTensors variables = {};
};

Outcome run_function(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs) {
  Outcome outcome;
  for (const auto& [name, tensor] : op.state().body(copies_of(inputs))) {
    outcome.outputs.emplace(name, tensor.detach().clone());
  }
  outcome.variables = variable_values(graph);
  return outcome;
}

Outcome run_program(Graph& graph, const Trace& trace, const std::vector<at::Tensor>& inputs) {
  std::vector<std::string> fetches;
  for (const auto& [name, id] : trace.outputs) fetches.push_back(name);
  Trace optimized = trace;
  optimize(optimized, fetches);
  const std::vector<at::Tensor> values = Program(optimized, fetches).run(copies_of(inputs));
  Outcome outcome;
  for (size_t i = 0; i < fetches.size(); ++i) outcome.outputs.emplace(fetches[i], values[i]);
  outcome.variables = variable_values(graph);
  return outcome;
}

at::Tensor find(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? at::Tensor() : found->second;
}

// "the tensor 'cost'", or "" when there is none. `start` has the variables before the run, `again`
// what a second run of the function gave, if there was one.
std::string first_difference(const Outcome& function, const Outcome& program,
                             const NamedTensors& start, const Outcome& again = {}) {
  for (const auto& [name, value] : program.outputs) {
    if (!is_equal(find(function.outputs, name), value, {.again = find(again.outputs, name)})) {
      return "the tensor '" + name + "'";
    }
  }
  for (const auto& [name, value] : program.variables) {
    if (!is_equal(find(function.variables, name), value,
                  {.start = find(start, name), .again = find(again.variables, name)})) {
      return "the variable '" + name + "'";
    }
  }
  return "";
}

std::string literal_text(const c10::IValue& value) {
  std::ostringstream stream;
  stream << value;
  return stream.str().substr(0, 60);
}

// An argument that is a plain number in both runs but not the same one was decided on the host.
std::string describe_literal_difference(const Node& before, const Node& now) {
  for (size_t i = 0; i < before.arguments.size(); ++i) {
    const Argument& a = before.arguments[i];
    const Argument& b = now.arguments[i];
    if (a.kind != Argument::Kind::kLiteral || b.kind != Argument::Kind::kLiteral) continue;
    const std::string old_text = literal_text(a.literal);
    const std::string new_text = literal_text(b.literal);
    if (old_text != new_text) {
      return fmt::format("its argument '{}' was {} when recorded and is {} now",
                         before.op.schema().arguments()[i].name(), old_text, new_text);
    }
  }
  return "";
}

std::string place_of(const Node& node, size_t index) {
  return fmt::format("node {}, {}{}", index, node.op_name(),
                     node.scope.empty() ? "" : " in scope '" + node.scope + "'");
}

// Where the function did something else, and what; "" if it did the same.
std::string difference_in_structure(const Trace& before, const Trace& now) {
  for (size_t i = 0; i < std::min(before.nodes.size(), now.nodes.size()); ++i) {
    const Node& node = before.nodes[i];
    if (node.op_name() != now.nodes[i].op_name()) {
      return fmt::format("{}: the function now calls {} instead", place_of(node, i),
                         now.nodes[i].op_name());
    }
    const std::string literal = describe_literal_difference(node, now.nodes[i]);
    if (!literal.empty()) return fmt::format("{}: {}", place_of(node, i), literal);
  }
  if (before.nodes.size() != now.nodes.size()) {
    return fmt::format("the function ran {} operators when recorded and {} now",
                       before.nodes.size(), now.nodes.size());
  }
  return "";
}

// Runs the trace node by node and compares with what the nodes of an equal recording gave.
std::string difference_in_results(const Trace& trace, const Recording& recording,
                                  const std::vector<at::Tensor>& inputs) {
  std::vector<c10::IValue> slots(trace.values.size());
  for (size_t i = 0; i < trace.values.size(); ++i) {
    if (trace.values[i].is_persistent()) slots[i] = trace.values[i].tensor;
  }
  const std::vector<at::Tensor> bound = copies_of(inputs);
  for (size_t i = 0; i < bound.size(); ++i) slots[trace.inputs[i]] = bound[i];
  for (size_t i = 0; i < trace.nodes.size(); ++i) {
    const Node& node = trace.nodes[i];
    run_node(node, slots);
    size_t k = 0;
    const std::vector<at::Tensor>& expected = recording.results[i];
    for (const Result& result : node.results) {
      for (ValueId id : result.ids) {
        if (k >= expected.size()) break;
        const at::Tensor& eager = expected[k++];
        if (id != kNoValue && !is_equal(slots[id].toTensor(), eager)) {
          return fmt::format("{}: its result differs", place_of(node, i));
        }
      }
    }
  }
  return "no single node differs: a result is written after it was read";
}

}  // namespace

RecordedOp record_op(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs,
                     bool keep_results) {
  RecordedOp recorded{copies_of(inputs), {}};  // the function may write to its inputs
  RecordOptions options{.keep_results = keep_results};
  options.inputs = recorded.inputs;
  for (const TensorSpec& spec : op.inputs()) options.input_names.push_back(spec.name);
  for (const Variable& variable : graph.variables().all()) {
    options.variables.emplace_back(variable.name, variable.tensor);
  }
  options.function = [&] { return op.state().body(recorded.inputs); };
  recorded.recording = record(options);
  return recorded;
}

void verify(Graph& graph, const Op& op, const RecordedOp& recorded,
            const std::vector<at::Tensor>& inputs, const StateGuard& guard) {
  at::NoGradGuard no_grad;
  const RepeatableKernels repeatable(graph.options().device);
  const Trace& trace = recorded.recording.trace;
  std::vector<at::Tensor> other;
  for (const at::Tensor& input : inputs) other.push_back(other_batch(input.detach()));

  guard.restore();
  const NamedTensors start = variable_values(graph);
  const Outcome function = run_function(graph, op, other);
  guard.restore();
  const Outcome program = run_program(graph, trace, other);
  const std::string what = first_difference(function, program, start);
  if (what.empty()) return;

  guard.restore();
  const RecordedOp again = record_op(graph, op, other, /*keep_results=*/true);
  guard.restore();
  std::string where = difference_in_structure(trace, again.recording.trace);
  if (where.empty() && graph.options().device.is_cuda()) {
    // Some kernels do not repeat themselves whatever they are told: attention, for one. What the
    // function itself does not repeat is not held against the program.
    const Outcome repeated = run_function(graph, op, other);
    guard.restore();
    if (first_difference(function, program, start, repeated).empty()) return;
  }
  if (where.empty()) where = difference_in_results(trace, again.recording, other);
  throw make_error("verify '" + op.name() + "'",
                   "the recorded program and the function disagree on {} for another batch; first "
                   "at {}. Likely causes: a value read or written on the host (data_ptr, accessor, "
                   "a member variable that changes), or a kernel outside libtorch's dispatcher. "
                   "Keep values in tensors and variables, or use ExecutorKind::kEager.",
                   what, where);
}

}  // namespace tensorpack
