// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>

#include "tensorpack/graph/check_batch.h"
#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/failure_place.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/run_activity.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/thread.h"
#include "tensorpack/utils/thread_frame.h"
#include "tensorpack/utils/worker_team.h"

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

// libtorch's advice on its allocator comes after the figures.
std::string describe(const c10::OutOfMemoryError& error) {
  std::string text = error.what_without_backtrace();
  const size_t end = text.find(" is free.");
  return end == std::string::npos ? text : text.substr(0, end + 9);
}

std::string place_of(const Op& op) { return "run '" + op.name() + "'"; }

// libtorch's errors know nothing of ops and layers. Errors of ours already say where.
template <typename Action>
void telling_where(const Op& op, const Action& action) {
  const FailurePlace place;
  try {
    action();
  } catch (const c10::OutOfMemoryError& error) {
    throw make_error(place_of(op),
                     "{} Use a smaller batch, a smaller model or Precision::kBFloat16.",
                     describe(error));
  } catch (const std::exception& error) {
    if (!is_plain(error)) throw;
    const std::string in_place = place.to_string();
    throw make_error(place_of(op), "{}{}", tensorpack::describe(error),
                     in_place.empty() ? "" : " (" + in_place + ")");
  }
}

// Ops that run at once share the cores, unless the user has said how many threads each takes.
int threads_of_each(size_t ops) {
  const int threads = at::get_num_threads();
  return env("OMP_NUM_THREADS") ? threads : std::max(1, threads / static_cast<int>(ops));
}

// While it lives, this thread does the part of one member of the group, if there is one.
class [[nodiscard]] MemberScope {
 public:
  MemberScope(ExchangeGroup* group, size_t index)
      : group_(group), index_(index), bound_(group == nullptr ? nullptr : &group->member(index)) {}
  ~MemberScope() {
    if (group_ != nullptr) group_->finish(index_);
  }
  MemberScope(const MemberScope&) = delete;
  MemberScope& operator=(const MemberScope&) = delete;

 private:
  ExchangeGroup* group_;
  size_t index_;
  ExchangeScope bound_;
};

// An exception in one of several ops that run at once says which.
[[noreturn]] void rethrow_from(const Op& op, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const StopTraining&) {
    throw;
  } catch (const InternalError& error) {
    throw InternalError("in '" + op.name() + "': " + error.what());
  } catch (const Error& error) {
    const std::string_view text = error.what();
    if (text.starts_with("[" + place_of(op) + "]")) throw;
    throw make_error(place_of(op), "{}", text);
  }
}

}  // namespace

// One evaluation: what was asked, and what has been found of it.
struct Session::Run {
  const Fetches& fetches;
  const Feeds& feeds;
  std::vector<at::Tensor> values;
  std::vector<char> is_taken;  // fetches that an op of the run gives
};

// A program op of a run: what goes in, and what comes out.
struct Session::Part {
  Op op = {};
  std::vector<at::Tensor> inputs = {};
  Fetches fetches = {};                // those it computes
  std::vector<size_t> positions = {};  // of these in the run
  PreparedOp* prepared = nullptr;
  std::vector<at::Tensor> results = {};

  void hand_over(Run& run) {
    for (size_t i = 0; i < positions.size(); ++i) run.values[positions[i]] = std::move(results[i]);
  }
};

Session::Session(Graph& graph, SessionOptions options)
    : graph_(graph), options_(std::move(options)) {
  const bool is_cuda = graph.options().device.is_cuda();
  TP_CHECK(options_.precision != Precision::kFloat16 || is_cuda, "session",
           "the precision is float16, which the {} cannot do. Use bfloat16.",
           graph.options().device.str());
  if (is_cuda) {
    kernel_settings_.emplace(KernelSettings{.tf32 = options_.precision != Precision::kFloat32,
                                            .deterministic = options_.deterministic,
                                            .cudnn_candidates = options_.cudnn_candidates});
  }
  graph.lock_layout();
  executor_ = make_executor(options_.executor, graph,
                            {.precision = options_.precision,
                             .verify = options_.verify,
                             .verify_again = options_.verify_again,
                             .fusion = options_.fusion});
}

Session::~Session() = default;

FetchedValues Session::run(const Op& op, const Fetches& fetches, const Feeds& feeds) {
  TP_CHECK(static_cast<bool>(op), "run", "the op is empty. Define it first.");
  check_feeds(op, feeds);
  if (op.state().kind == Op::State::Kind::kHost && fetches.empty()) {
    op.state().function();  // touches nothing of the session
    return {};
  }
  const std::lock_guard lock(mutex_);
  for (const std::string& fetch : fetches) check_fetch(op, fetch, place_of(op));
  Run run{fetches, feeds, std::vector<at::Tensor>(fetches.size()),
          std::vector<char>(fetches.size(), 0)};
  run_member(op, run);
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (run.values[i].defined()) continue;
    run.values[i] = graph_.variables().at(fetches[i]).tensor.detach().clone();
  }
  return host_copies_.start(std::move(run.values));
}

at::Tensor Session::run(const TensorRef& tensor, const Feeds& feeds) {
  return run(tensor.op, {tensor.name}, feeds)[0];
}

void Session::run_member(const Op& op, Run& run) {
  switch (op.state().kind) {
    case Op::State::Kind::kHost:
      op.state().function();
      break;
    case Op::State::Kind::kProgram:
      run_program(op, run);
      break;
    case Op::State::Kind::kGroup:
      for (const Op& member : op.state().members) run_member(member, run);
      break;
    case Op::State::Kind::kParallel:
      run_parallel(op, run);
      break;
  }
}

void Session::run_program(const Op& op, Run& run) {
  Part part = make_part(op, run);
  prepare(part);
  const RunActivity activity(RunPhase::kRunning, op);
  execute(part, nullptr, 0);
  part.hand_over(run);
}

// All get their batches before one is prepared, and all are prepared before one runs: what fails
// here fails before any of them waits for another.
void Session::run_parallel(const Op& op, Run& run) {
  std::vector<Part> parts;
  for (const Op& member : op.state().members) parts.push_back(make_part(member, run));
  for (Part& part : parts) prepare(part);
  const RunActivity activity(RunPhase::kRunning, op);
  ExchangeGroup* group = op.state().exchange.get();
  if (group != nullptr) group->start();
  WorkerTeam& team = team_of(op);
  const OpThreadsScope threads(threads_of_each(parts.size()));
  const auto failure = team.run([&](size_t i) { execute(parts[i], group, i); },
                                [&](size_t i) {
                                  if (group != nullptr) group->abort(i);
                                });
  if (failure) rethrow_from(parts[failure->worker].op, failure->exception);
  for (Part& part : parts) part.hand_over(run);
}

WorkerTeam& Session::team_of(const Op& op) {
  std::unique_ptr<WorkerTeam>& team = teams_[&op.state()];
  const size_t size = op.state().members.size();
  if (!team) {
    const int threads = threads_of_each(size);
    team = std::make_unique<WorkerTeam>("tower", size, [threads] { set_op_threads(threads); });
  }
  return *team;
}

// Takes the fetches that this op gives and that no op before it did.
Session::Part Session::make_part(const Op& op, Run& run) {
  Part part{.op = op, .inputs = bind_inputs(op, run.feeds)};
  for (size_t i = 0; i < run.fetches.size(); ++i) {
    const std::string& name = run.fetches[i];
    const bool is_input = op.has_input(name);
    if (run.is_taken[i] || !(is_input || op.has_output(name))) continue;
    run.is_taken[i] = 1;
    if (!is_input) {
      part.fetches.push_back(name);
      part.positions.push_back(i);
    }
    for (size_t k = 0; k < part.inputs.size(); ++k) {
      if (op.inputs()[k].name == name) run.values[i] = part.inputs[k];
    }
  }
  return part;
}

void Session::prepare(Part& part) {
  const RunActivity activity(RunPhase::kPreparing, part.op);
  telling_where(part.op,
                [&] { part.prepared = &executor_->prepare(part.op, part.inputs, part.fetches); });
}

// With a frame of its own: functions that are called eagerly see nothing of their surroundings.
void Session::execute(Part& part, ExchangeGroup* group, size_t index) {
  const FreshFrame frame;
  const MemberScope member(group, index);
  telling_where(part.op, [&] { part.results = part.prepared->run(part.inputs); });
}

void Session::check_feeds(const Op& op, const Feeds& feeds) const {
  for (const auto& [name, value] : feeds) {
    TP_CHECK(op.has_input(name), place_of(op), "'{}' was fed but is not an input. {}", name,
             did_you_mean(name, input_names(op)));
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
    TP_CHECK(op.state().feeder != nullptr, place_of(op),
             "the op has no input source, and was fed {} of {}. Feed: {}.", fed,
             counted(std::ssize(specs), "input"), join(input_names(op), ", "));
    const RunActivity activity(RunPhase::kInput, op);
    std::optional<std::vector<at::Tensor>> batch = op.state().feeder();
    if (!batch) throw EndOfData("The input source has no more data.");
    inputs = std::move(*batch);
    check_batch_size(specs, inputs);
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
  const std::lock_guard lock(mutex_);
  if (const Trace* trace = executor_->recorded(op)) return *trace;
  std::vector<at::Tensor> inputs;
  for (const TensorSpec& spec : op.inputs()) inputs.push_back(spec.trial_value(op.device()));
  const FreshFrame frame;
  const TowerPrecision precision(options_.precision);
  const StateGuard guard(graph_, {op.state().generator});
  return record_op(graph_, op, inputs).recording.trace;
}

void Session::check_fetch(const Op& op, const std::string& fetch, const std::string& where) const {
  if (op.has_output(fetch) || op.has_input(fetch)) return;
  if (graph_.variables().find(fetch) != nullptr) return;
  std::vector<std::string> known = input_names(op);
  for (const auto& [name, spec] : op.outputs()) known.push_back(name);
  for (const std::string& name : graph_.variables().names()) known.push_back(name);
  throw make_error(where, "no tensor named '{}' in op '{}'. {}", fetch, op.name(),
                   did_you_mean(fetch, known));
}

}  // namespace tensorpack
