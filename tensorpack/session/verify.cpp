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

// `start` is what a variable held before the run: one step changes it little, so its change is what
// must agree.
bool is_equal(const at::Tensor& expected, const at::Tensor& value, const at::Tensor& start = {}) {
  if (!expected.defined() || !value.defined()) return expected.defined() == value.defined();
  if (expected.sizes() != value.sizes() || expected.scalar_type() != value.scalar_type()) {
    return false;
  }
  if (expected.layout() != at::kStrided) return is_equal(expected.to_dense(), value.to_dense());
  if (at::equal(expected, value)) return true;
  if (!expected.is_floating_point() && !expected.is_complex()) return false;
  if (!at::equal(at::isnan(expected), at::isnan(value))) return false;
  const double scale = largest_magnitude(start.defined() ? expected - start : expected);
  const double epsilon =
      expected.scalar_type() == at::kDouble || expected.scalar_type() == at::kComplexDouble
          ? std::numeric_limits<double>::epsilon()
          : std::numeric_limits<float>::epsilon();
  const double rounding = 4 * epsilon * largest_magnitude(expected);
  return largest_magnitude(expected - value) <= kTolerance * scale + rounding;
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

std::vector<at::Tensor> variable_values(Graph& graph) {
  std::vector<at::Tensor> values;
  for (const Variable& variable : graph.variables().all()) {
    values.push_back(variable.tensor.detach().clone());
  }
  return values;
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

// Records the op again on the other batch and walks both runs side by side.
std::string find_first_difference(Graph& graph, const Op& op, const Trace& trace,
                                  const std::vector<at::Tensor>& other, const StateGuard& guard) {
  guard.restore();
  const RecordedOp again = record_op(graph, op, other, /*keep_results=*/true);
  guard.restore();
  const Trace& now = again.recording.trace;
  std::vector<c10::IValue> slots(trace.values.size());
  for (size_t i = 0; i < trace.values.size(); ++i) {
    if (trace.values[i].is_persistent()) slots[i] = trace.values[i].tensor;
  }
  const std::vector<at::Tensor> bound = copies_of(other);
  for (size_t i = 0; i < bound.size(); ++i) slots[trace.inputs[i]] = bound[i];
  for (size_t i = 0; i < std::min(trace.nodes.size(), now.nodes.size()); ++i) {
    const Node& node = trace.nodes[i];
    if (node.op_name() != now.nodes[i].op_name()) {
      return fmt::format("{}: the function now calls {} instead", place_of(node, i),
                         now.nodes[i].op_name());
    }
    const std::string literal = describe_literal_difference(node, now.nodes[i]);
    if (!literal.empty()) return fmt::format("{}: {}", place_of(node, i), literal);
    run_node(node, slots);
    size_t k = 0;
    const std::vector<at::Tensor>& expected = again.recording.results[i];
    for (const Result& result : node.results) {
      for (ValueId id : result.ids) {
        if (k >= expected.size()) break;
        const at::Tensor& eager = expected[k++];
        if (id == kNoValue) continue;
        if (!is_equal(slots[id].toTensor(), eager)) {
          return fmt::format("{}: its result differs", place_of(node, i));
        }
      }
    }
  }
  if (trace.nodes.size() != now.nodes.size()) {
    return fmt::format("the function ran {} operators when recorded and {} now", trace.nodes.size(),
                       now.nodes.size());
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
  const std::vector<at::Tensor> start = variable_values(graph);
  NamedTensors expected;
  for (const auto& [name, tensor] : op.state().body(copies_of(other))) {
    expected.emplace(name, tensor.detach().clone());
  }
  const std::vector<at::Tensor> expected_variables = variable_values(graph);
  guard.restore();

  std::vector<std::string> fetches;
  for (const auto& [name, id] : trace.outputs) fetches.push_back(name);
  Trace optimized = trace;
  optimize(optimized, fetches);
  const std::vector<at::Tensor> values = Program(optimized, fetches).run(copies_of(other));

  std::string what;
  for (size_t i = 0; i < fetches.size() && what.empty(); ++i) {
    auto found = expected.find(fetches[i]);
    if (found == expected.end() || !is_equal(found->second, values[i])) {
      what = "the tensor '" + fetches[i] + "'";
    }
  }
  size_t index = 0;
  for (const Variable& variable : graph.variables().all()) {
    if (!what.empty()) break;
    if (!is_equal(expected_variables[index], variable.tensor.detach(), start[index])) {
      what = "the variable '" + variable.name + "'";
    }
    ++index;
  }
  if (what.empty()) return;
  throw make_error("verify '" + op.name() + "'",
                   "the recorded program and the function disagree on {} for another batch; first "
                   "at {}. Likely causes: a value read or written on the host (data_ptr, accessor, "
                   "a member variable that changes), or a kernel outside libtorch's dispatcher. "
                   "Keep values in tensors and variables, or use ExecutorKind::kEager.",
                   what, find_first_difference(graph, op, trace, other, guard));
}

}  // namespace tensorpack
