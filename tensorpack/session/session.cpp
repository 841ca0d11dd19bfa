// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/cpu_allocator.h"
#include "tensorpack/session/verify.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// Of all members, for a group.
void add_input_names(const Op& op, std::vector<std::string>& names) {
  for (const TensorSpec& spec : op.inputs()) names.push_back(spec.name);
  for (const Op& member : op.state().members) add_input_names(member, names);
}

std::vector<std::string> input_names(const Op& op) {
  std::vector<std::string> names;
  add_input_names(op, names);
  return names;
}

bool is_input(const Op& op, const std::string& name) {
  const auto& inputs = op.inputs();
  const auto& members = op.state().members;
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](const TensorSpec& spec) { return spec.name == name; }) ||
         std::any_of(members.begin(), members.end(),
                     [&](const Op& member) { return is_input(member, name); });
}

// Settings of the process.
void set_up_cuda(const SessionOptions& options) {
  at::Context& context = at::globalContext();
  const bool tf32 = options.precision != Precision::kFloat32;
  context.setAllowTF32CuBLAS(tf32);
  context.setAllowTF32CuDNN(tf32);
  context.setBenchmarkCuDNN(!options.deterministic);
  context.setDeterministicCuDNN(options.deterministic);
  context.setDeterministicAlgorithms(options.deterministic, /*warn_only=*/true);
}

// libtorch's advice on its allocator comes after the figures.
std::string describe(const c10::OutOfMemoryError& error) {
  std::string text = error.what_without_backtrace();
  const size_t end = text.find(" is free.");
  return end == std::string::npos ? text : text.substr(0, end + 9);
}

}  // namespace

Session::Session(Graph& graph, SessionOptions options) : graph_(graph), options_(options) {
  TP_CHECK(options.precision != Precision::kFloat16 || graph.options().device.is_cuda(), "session",
           "the precision is float16, which the {} cannot do. Use bfloat16.",
           graph.options().device.str());
  install_caching_cpu_allocator();
  if (graph.options().device.is_cuda()) set_up_cuda(options);
  graph.lock_layout();
  executor_ = make_executor(options.executor, graph, {.verify = options.verify});
}

Session::~Session() = default;

FetchedValues Session::run(const Op& op, const Fetches& fetches, const Feeds& feeds) {
  TP_CHECK(static_cast<bool>(op), "run", "the op is empty. Define it first.");
  check_feeds(op, feeds);
  for (const std::string& fetch : fetches) check_fetch(op, fetch, "run '" + op.name() + "'");
  std::vector<at::Tensor> values(fetches.size());
  run_member(op, fetches, feeds, values);
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (values[i].defined()) continue;
    values[i] = graph_.variables().at(fetches[i]).tensor.detach().clone();
  }
  return host_copies_.start(std::move(values));
}

void Session::run_member(const Op& op, const Fetches& fetches, const Feeds& feeds,
                         std::vector<at::Tensor>& values) {
  switch (op.state().kind) {
    case Op::State::Kind::kHost:
      op.state().function();
      break;
    case Op::State::Kind::kProgram:
      run_program(op, fetches, feeds, values);
      break;
    case Op::State::Kind::kGroup:
      for (const Op& member : op.state().members) run_member(member, fetches, feeds, values);
      break;
  }
}

at::Tensor Session::run(const TensorRef& tensor, const Feeds& feeds) {
  return run(tensor.op, {tensor.name}, feeds)[0];
}

// Fills in the fetches that this op computes and that no earlier member of a group did.
void Session::run_program(const Op& op, const Fetches& fetches, const Feeds& feeds,
                          std::vector<at::Tensor>& values) {
  const std::vector<at::Tensor> inputs = bind_inputs(op, feeds);
  Fetches computed;
  std::vector<size_t> positions;
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (values[i].defined() || is_input(op, fetches[i]) || !op.has_output(fetches[i])) continue;
    computed.push_back(fetches[i]);
    positions.push_back(i);
  }
  std::vector<at::Tensor> results = execute(op, inputs, computed);
  for (size_t i = 0; i < positions.size(); ++i) values[positions[i]] = std::move(results[i]);
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (values[i].defined()) continue;
    for (size_t k = 0; k < inputs.size(); ++k) {
      if (op.inputs()[k].name == fetches[i]) values[i] = inputs[k];
    }
  }
}

std::vector<at::Tensor> Session::execute(const Op& op, const std::vector<at::Tensor>& inputs,
                                         const Fetches& fetches) {
  const TowerPrecision precision(options_.precision);
  try {
    return executor_->run(op, inputs, fetches);
  } catch (const c10::OutOfMemoryError& error) {
    throw make_error("run '" + op.name() + "'",
                     "{} Use a smaller batch, a smaller model or Precision::kBFloat16.",
                     describe(error));
  }
}

void Session::check_feeds(const Op& op, const Feeds& feeds) const {
  for (const auto& [name, value] : feeds) {
    TP_CHECK(is_input(op, name), "run '" + op.name() + "'", "'{}' was fed but is not an input. {}",
             name, did_you_mean(name, input_names(op)));
  }
}

std::vector<at::Tensor> Session::bind_inputs(const Op& op, const Feeds& feeds) const {
  const std::vector<TensorSpec>& specs = op.inputs();
  const auto fed =
      static_cast<size_t>(std::count_if(specs.begin(), specs.end(), [&](const TensorSpec& spec) {
        return feeds.contains(spec.name);
      }));
  std::vector<at::Tensor> inputs(specs.size());
  if (fed < specs.size()) {
    TP_CHECK(op.state().feeder != nullptr, "run '" + op.name() + "'",
             "only {} of {} inputs were fed and the op has no input source. Feed: {}.", fed,
             specs.size(), join(input_names(op), ", "));
    inputs = op.state().feeder();
    if (inputs.empty()) throw EndOfData("The input source has no more data.");
    TP_CHECK(inputs.size() == specs.size(), "input",
             "a datapoint has {} components, the input signature has {} ({}). Make the dataflow "
             "yield one tensor per input.",
             inputs.size(), specs.size(), join(input_names(op), ", "));
  }
  for (size_t i = 0; i < specs.size(); ++i) {
    auto feed = feeds.find(specs[i].name);
    if (feed != feeds.end()) inputs[i] = feed->second;
    specs[i].check(inputs[i]);
    inputs[i] = inputs[i].to(op.device());
  }
  return inputs;
}

Trace Session::trace(const Op& op) {
  TP_CHECK(op && op.state().kind == Op::State::Kind::kProgram, "trace",
           "'{}' is not a recorded function. Pass an op made by define().", op.name());
  std::vector<at::Tensor> inputs;
  for (const TensorSpec& spec : op.inputs()) inputs.push_back(spec.trial_value(op.device()));
  const TowerPrecision precision(options_.precision);
  StateGuard guard(graph_);
  return record_op(graph_, op, inputs).recording.trace;
}

void Session::check_fetch(const Op& op, const std::string& fetch, const std::string& where) const {
  if (op.has_output(fetch) || is_input(op, fetch)) return;
  if (graph_.variables().find(fetch) != nullptr) return;
  std::vector<std::string> known = input_names(op);
  for (const auto& [name, spec] : op.outputs()) known.push_back(name);
  for (const std::string& name : graph_.variables().names()) known.push_back(name);
  throw make_error(where, "no tensor named '{}' in op '{}'. {}", fetch, op.name(),
                   did_you_mean(fetch, known));
}

}  // namespace tensorpack
