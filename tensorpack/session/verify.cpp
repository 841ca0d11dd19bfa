// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/verify.h"

#include <ATen/ATen.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <sstream>

#include "tensorpack/graph/interpreter.h"
#include "tensorpack/graph/passes/passes.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/program.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

// Kernels may round differently from run to run; frozen values differ by far more.
constexpr double kTolerance = 1e-3;
constexpr double kToleranceOnAverage = 1e-2;
// Where function or program do not repeat themselves, they may be this much farther apart.
constexpr double kTimesNoise = 4;

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
  return at::nan_to_num(tensor.abs()).max().item<double>();
}

at::Tensor beside(const at::Tensor& other, const at::Tensor& tensor) {
  return tensor.defined() ? tensor.to(other.device()) : tensor;
}

// `start` is what a variable held before the run: one step changes it little, so its change is what
// must agree.
bool is_equal(at::Tensor expected, const at::Tensor& value, const at::Tensor& start = {}) {
  if (!expected.defined() || !value.defined()) return expected.defined() == value.defined();
  if (expected.sizes() != value.sizes() || expected.scalar_type() != value.scalar_type()) {
    return false;
  }
  expected = beside(value, expected);
  if (expected.layout() != at::kStrided) return is_equal(expected.to_dense(), value.to_dense());
  if (at::equal(expected, value)) return true;
  if (!expected.is_floating_point() && !expected.is_complex()) return false;
  if (!at::equal(at::isnan(expected), at::isnan(value))) return false;
  const double scale =
      largest_magnitude(start.defined() ? expected - beside(value, start) : expected);
  const double epsilon =
      expected.scalar_type() == at::kDouble || expected.scalar_type() == at::kComplexDouble
          ? std::numeric_limits<double>::epsilon()
          : std::numeric_limits<float>::epsilon();
  const double rounding = 4 * epsilon * largest_magnitude(expected);
  return largest_magnitude(expected - value) <= kTolerance * scale + rounding;
}

double mean_difference(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined() || a.sizes() != b.sizes() || a.numel() == 0) return 0;
  return at::nan_to_num((beside(b, a) - b).abs()).mean(at::kDouble).item<double>();
}

// Two results of the function and two of the program, each from the same state.
struct Repeated {
  at::Tensor function = {}, function_again = {};
  at::Tensor program = {}, program_again = {};
};

// For what does not repeat itself. On average, because single elements may differ at will: the
// first step of Adam is the sign of the gradient, however small.
bool is_equal_on_average(const Repeated& results, const at::Tensor& start) {
  if (!results.function.defined() || !results.function.is_floating_point() ||
      results.function.sizes() != results.program.sizes()) {
    return false;
  }
  const at::Tensor expected = beside(results.program, results.function);
  const double scale = mean_difference(start.defined() ? start : expected * 0, expected);
  const double noise = mean_difference(expected, results.function_again) +
                       mean_difference(results.program, results.program_again);
  return mean_difference(expected, results.program) <=
         kToleranceOnAverage * scale + kTimesNoise * noise;
}

// Another batch with valid contents: the rows in another order, numbers a little smaller.
at::Tensor other_batch(const at::Tensor& input) {
  if (input.numel() == 0) return input;
  at::Tensor other = input.dim() > 0 && input.size(0) > 1
                         ? input.roll(1, 0)
                         : input.flatten().roll(1).reshape(input.sizes());
  if (other.is_floating_point()) other = other * 0.875;
  return at::empty_like(input).copy_(other);  // in the same memory format
}

// The same memory, yet nobody else's tensor: two inputs may be one, or one that the function knows
// from elsewhere. A batch is large, and a device may have no room for another.
at::Tensor alias_of(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided || !tensor.is_non_overlapping_and_dense() ||
      tensor.is_conj() || tensor.is_neg()) {
    return tensor.detach().clone();
  }
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .strides(tensor.strides())
      .deleter([kept = tensor](void*) {})
      .options(tensor.options().requires_grad(false))
      .target_device(tensor.device())
      .make_tensor();
}

// A copy in the memory of the host: a device may have no room for everything twice.
at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.is_cuda() ? tensor.detach().cpu() : tensor.detach().clone();
}

std::vector<at::Tensor> copies_on(c10::Device device, const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.to(device, tensor.scalar_type(), /*non_blocking=*/false,
                               /*copy=*/true));
  }
  return copies;
}

// What a run gave and left behind.
struct Outcome {
  NamedTensors outputs = {};
  NamedTensors variables = {};
};

// To last while something else runs.
Outcome kept(Outcome outcome) {
  for (NamedTensors* tensors : {&outcome.outputs, &outcome.variables}) {
    for (auto& [name, tensor] : *tensors) tensor = on_host(tensor);
  }
  return outcome;
}

NamedTensors variables_of(Graph& graph) {
  NamedTensors variables;
  for (const Variable& variable : graph.variables().all()) {
    variables.emplace(variable.name, variable.tensor.detach());
  }
  return variables;
}

NamedTensors saved_variables(Graph& graph, const StateGuard& guard) {
  NamedTensors saved;
  for (const Variable& variable : graph.variables().all()) {
    saved.emplace(variable.name, guard.saved(variable));
  }
  return saved;
}

// The outputs that are compared. Every layer has one, and all together are as large as the
// activations of the model: the smallest suffice, because they depend on the others.
std::vector<std::string> outputs_to_compare(const Trace& trace) {
  constexpr int64_t kEnough = int64_t{1} << 24;
  std::vector<std::pair<int64_t, std::string>> by_size;
  for (const auto& [name, id] : trace.outputs) {
    by_size.emplace_back(c10::multiply_integers(trace.values[id].sizes), name);
  }
  std::sort(by_size.begin(), by_size.end());
  std::vector<std::string> names;
  int64_t elements = 0;
  for (const auto& [size, name] : by_size) {
    elements += size;
    if (elements > kEnough && !names.empty()) break;
    names.push_back(name);
  }
  return names;
}

Outcome run_function(Graph& graph, const Op& op, const std::vector<std::string>& names,
                     const std::vector<at::Tensor>& inputs) {
  const PhaseLog phase(op.name(), op.device(), "running the function to verify");
  Outcome outcome{.variables = variables_of(graph)};
  const NamedTensors outputs = op.run_body(copies_on(op.device(), inputs), names);
  for (const std::string& name : names) {
    const auto found = outputs.find(name);
    if (found != outputs.end()) outcome.outputs.insert(*found);
  }
  return kept(std::move(outcome));
}

// Its results, and the variables themselves: until something else runs.
Outcome run_program(Graph& graph, const Op& op, const Trace& trace,
                    const std::vector<std::string>& names, const std::vector<at::Tensor>& inputs) {
  const PhaseLog phase(op.name(), op.device(), "running the program to verify");
  Trace optimized = trace;
  optimize(optimized, names);
  const std::vector<at::Tensor> values =
      Program(optimized, names).run(copies_on(op.device(), inputs));
  Outcome outcome{.variables = variables_of(graph)};
  for (size_t i = 0; i < names.size(); ++i) outcome.outputs.emplace(names[i], values[i]);
  return outcome;
}

at::Tensor find(const NamedTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? at::Tensor() : found->second;
}

// "the tensor 'cost'", or "" when there is none. `start` has the variables before the run.
std::string first_difference(const Op& op, const Outcome& function, const Outcome& program,
                             const NamedTensors& start) {
  const PhaseLog phase(op.name(), op.device(), "comparing");
  for (const auto& [name, value] : program.outputs) {
    if (!is_equal(find(function.outputs, name), value)) return "the tensor '" + name + "'";
  }
  for (const auto& [name, value] : program.variables) {
    if (!is_equal(find(function.variables, name), value, find(start, name))) {
      return "the variable '" + name + "'";
    }
  }
  return "";
}

// Whether function and program agree as well as each agrees with itself. Some kernels of CUDA do
// not repeat themselves whatever they are told: attention, for one.
bool agree_within_noise(const Outcome& function, const Outcome& function_again,
                        const Outcome& program, const Outcome& program_again,
                        const NamedTensors& start) {
  const auto agree = [](const NamedTensors& f, const NamedTensors& f_again, const NamedTensors& p,
                        const NamedTensors& p_again, const NamedTensors& from) {
    return std::all_of(p.begin(), p.end(), [&](const auto& item) {
      const auto& [name, value] = item;
      return is_equal(find(f, name), value, find(from, name)) ||
             is_equal_on_average({find(f, name), find(f_again, name), value, find(p_again, name)},
                                 find(from, name));
    });
  };
  return agree(function.outputs, function_again.outputs, program.outputs, program_again.outputs,
               {}) &&
         agree(function.variables, function_again.variables, program.variables,
               program_again.variables, start);
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
std::string difference_in_results(c10::Device device, const Trace& trace,
                                  const Recording& recording,
                                  const std::vector<at::Tensor>& inputs) {
  std::vector<c10::IValue> slots(trace.values.size());
  for (size_t i = 0; i < trace.values.size(); ++i) {
    if (trace.values[i].is_persistent()) slots[i] = trace.values[i].tensor;
  }
  const std::vector<at::Tensor> bound = copies_on(device, inputs);
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

// On what function and program disagree, and where the function did something else.
struct Disagreement {
  std::string what = {};   // empty if they agree
  std::string where = {};  // empty if only the results differ
};

Disagreement compare(Graph& graph, const Op& op, const Trace& trace,
                     const std::vector<at::Tensor>& inputs, const StateGuard& guard) {
  const std::vector<std::string> names = outputs_to_compare(trace);
  const NamedTensors start = saved_variables(graph, guard);
  guard.restore();
  const Outcome function = run_function(graph, op, names, inputs);
  guard.restore();
  Outcome program = run_program(graph, op, trace, names, inputs);
  Disagreement found{.what = first_difference(op, function, program, start)};
  const bool is_cuda = op.device().is_cuda();
  const bool is_near =
      found.what.empty() || (is_cuda && agree_within_noise(function, {}, program, {}, start));
  if (!is_near) program = kept(std::move(program));
  guard.restore();
  if (found.what.empty()) return found;

  found.where = difference_in_structure(
      trace, record_op(graph, op, copies_on(op.device(), inputs)).recording.trace);
  guard.restore();
  if (!found.where.empty() || !is_cuda) return found;
  if (is_near) return {};
  const Outcome function_again = run_function(graph, op, names, inputs);
  guard.restore();
  const Outcome program_again = kept(run_program(graph, op, trace, names, inputs));
  guard.restore();
  if (agree_within_noise(function, function_again, program, program_again, start)) return {};
  return found;
}

}  // namespace

RecordedOp record_op(Graph& graph, const Op& op, const std::vector<at::Tensor>& inputs,
                     bool keep_results) {
  const PhaseLog phase(op.name(), op.device(), "recording");
  RecordedOp recorded;
  for (const at::Tensor& input : inputs) recorded.inputs.push_back(alias_of(input));
  RecordOptions options{.keep_results = keep_results};
  options.inputs = recorded.inputs;
  for (const TensorSpec& spec : op.inputs()) options.input_names.push_back(spec.name);
  for (const Variable& variable : graph.variables().all()) {
    options.variables.emplace_back(variable.name, variable.tensor);
  }
  options.function = [&] { return op.state().body(recorded.inputs); };
  options.kept_layer_outputs = op.state().looked_up;
  options.is_output = [&op](const std::string& name) { return op.has_output(name); };
  recorded.recording = record(options);
  return recorded;
}

void verify(Graph& graph, const Op& op, const RecordedOp& recorded,
            const std::vector<at::Tensor>& inputs, const StateGuard& guard) {
  at::NoGradGuard no_grad;
  const Trace& trace = recorded.recording.trace;
  std::vector<at::Tensor> other;
  for (const at::Tensor& input : inputs) other.push_back(other_batch(on_host(input)));

  Disagreement found = compare(graph, op, trace, other, guard);
  if (found.what.empty()) return;
  // The last word: with kernels that repeat themselves, which cost cuDNN some time to choose.
  const RepeatableKernels repeatable(op.device());
  if (op.device().is_cuda()) found = compare(graph, op, trace, other, guard);
  if (found.what.empty()) return;
  if (found.where.empty()) {
    const RecordedOp again =
        record_op(graph, op, copies_on(op.device(), other), /*keep_results=*/true);
    guard.restore();
    found.where = difference_in_results(op.device(), trace, again.recording, other);
  }
  throw make_error("verify '" + op.name() + "'",
                   "the recorded program and the function disagree on {} for another batch; first "
                   "at {}. Likely causes: a value read or written on the host (data_ptr, accessor, "
                   "a member variable that changes), or a kernel outside libtorch's dispatcher. "
                   "Keep values in tensors and variables, or use ExecutorKind::kEager.",
                   found.what, found.where);
}

}  // namespace tensorpack
