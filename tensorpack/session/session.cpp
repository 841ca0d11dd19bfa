// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/session.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>

#include "tensorpack/graph/check_batch.h"
#include "tensorpack/graph/exchange.h"
#include "tensorpack/graph/failure_place.h"
#include "tensorpack/graph/kept_locked.h"
#include "tensorpack/graph/left_out_inputs.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/session/detail/host_copies.h"
#include "tensorpack/session/eager_executor.h"
#include "tensorpack/session/function_scope.h"
#include "tensorpack/session/kernel_settings.h"
#include "tensorpack/session/run_activity.h"
#include "tensorpack/utils/detail/tensor_writes.h"
#include "tensorpack/utils/detail/thread_frame.h"
#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/thread.h"
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

// A program op of a run: what goes in, and what comes out.
struct Session::Part {
  Op op = {};
  std::vector<at::Tensor> inputs = {};  // as the source gave them, until they are bound
  bool has_batch = false;               // of the op's source
  Fetches fetches = {};                 // those it computes
  std::vector<size_t> positions = {};   // of these in the run
  PreparedOp* prepared = nullptr;
  std::vector<at::Tensor> results = {};
};

struct Session::Internals {
  std::optional<HoldKernelSettings> kernel_settings;  // on CUDA
  std::map<ExecutorKind, std::unique_ptr<Executor>> executors;
  std::map<const Op::State*, std::unique_ptr<WorkerTeam>> teams;  // of ops that run at once
  HostCopies host_copies;
};

// One evaluation: what was asked, and what has been found of it.
struct Session::Run {
  const Fetches& fetches;
  const Feeds& feeds;
  std::vector<at::Tensor> values;
  std::vector<char> is_taken;    // fetches that an op of the run gives
  std::vector<Part> parts = {};  // in the order in which they run
  size_t done = 0;               // how many of them have run
  // While ops run. Not while the run waits for batches or a host function.
  std::unique_lock<std::recursive_mutex> lock = {};

  void take_results_of(Part& part) {
    for (size_t i = 0; i < part.positions.size(); ++i) {
      values[part.positions[i]] = std::move(part.results[i]);
    }
  }
};

namespace {

// Whether the op has this name, or is a tower of the op that has it.
bool is_called(const Op& op, const std::string& name) {
  return op.name() == name || op.name().starts_with(name + "/");
}

void check_names(const std::map<std::string, ExecutorKind>& executor_of, const Graph& graph) {
  std::vector<std::string> known;
  for (const Op& op : graph.ops()) known.push_back(op.name());
  for (const auto& named : executor_of) {
    const std::string& name = named.first;
    const bool is_known = std::any_of(graph.ops().begin(), graph.ops().end(),
                                      [&](const Op& op) { return is_called(op, name); });
    TP_CHECK(is_known, "session", "executor_of names '{}', and no op is called so. {}", name,
             did_you_mean(name, known));
  }
}

}  // namespace

ExecutorKind executor_of(const SessionOptions& options, const Op& op) {
  for (const auto& [name, kind] : options.executor_of) {
    if (is_called(op, name)) return kind;
  }
  return options.executor;
}

PassSwitches pass_switches(const SessionOptions& options, c10::DeviceType device) {
  PassSwitches switches = options.fusion == Fusion::kNone    ? PassSwitches::none()
                          : options.fusion == Fusion::kExact ? PassSwitches::exact(device)
                                                             : PassSwitches();
  switches.recompute = options.recompute;
  switches.keep_copies = options.keep_weight_copies;
  if (options.debug_passes) options.debug_passes(switches);
  return switches;
}

Session::Session(Graph& graph, SessionOptions options)
    : graph_(graph), options_(std::move(options)), internals_(std::make_unique<Internals>()) {
  const bool is_cuda = graph.options().device.is_cuda();
  TP_CHECK(options_.precision != Precision::kFloat16 || is_cuda, "session",
           "the precision is float16, which the {} cannot do. Use bfloat16.",
           graph.options().device.str());
  if (is_cuda) {
    internals_->kernel_settings.emplace(
        KernelSettings{.tf32 = options_.precision != Precision::kFloat32,
                       .deterministic = options_.deterministic,
                       .cudnn_candidates = options_.cudnn_candidates});
  }
  graph.lock_layout();
  check_names(options_.executor_of, graph);
  const ExecutorOptions executor_options{
      .precision = options_.precision,
      .verify = options_.verify,
      .verify_again = options_.verify_again,
      .switches = pass_switches(options_, graph.options().device.type())};
  const auto add = [&](ExecutorKind kind) {
    auto& executor = internals_->executors[kind];
    if (!executor) executor = make_executor(kind, graph, executor_options);
  };
  add(options_.executor);
  for (const auto& [name, kind] : options_.executor_of) add(kind);
}

Session::~Session() = default;

FetchedValues Session::run(const Op& op, const Fetches& fetches, const Feeds& feeds) {
  TP_CHECK(static_cast<bool>(op), "run", "the op is empty. Define it first.");
  check_feeds(op, feeds);
  if (op.state().kind == Op::State::Kind::kHost && fetches.empty()) {
    op.state().function();  // touches nothing of the session
    return {};
  }
  for (const std::string& fetch : fetches) check_fetch(op, fetch, place_of(op));
  Run run{fetches, feeds, std::vector<at::Tensor>(fetches.size()),
          std::vector<char>(fetches.size(), 0)};
  add_parts(op, run.parts);
  take_batches(run);
  for (Part& part : run.parts) bind_inputs(part, run);
  run_member(op, run);
  if (!run.lock.owns_lock()) run.lock = lock();
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < fetches.size(); ++i) {
    if (run.values[i].defined()) continue;
    run.values[i] = graph_.variables().at(fetches[i]).tensor.detach().clone();
  }
  return internals_->host_copies.start(std::move(run.values));
}

at::Tensor Session::run(const TensorRef& tensor, const Feeds& feeds) {
  return run(tensor.op, {tensor.name}, feeds)[0];
}

Executor& Session::executor_for(const Op& op) {
  return *internals_->executors.at(executor_of(options_, op));
}

void Session::run_member(const Op& op, Run& run) {
  switch (op.state().kind) {
    case Op::State::Kind::kHost:
      if (run.lock.owns_lock()) run.lock.unlock();  // it may wait for a thread that predicts
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
  Part& part = run.parts[run.done++];
  make_ready({&part, 1}, run);
  const RunActivity activity(RunPhase::kRunning, op);
  execute(part, nullptr, 0);
  run.take_results_of(part);
}

// All are prepared before one runs: what fails there fails before any of them waits for another.
void Session::run_parallel(const Op& op, Run& run) {
  const std::span parts = std::span(run.parts).subspan(run.done, op.state().members.size());
  run.done += parts.size();
  make_ready(parts, run);
  const RunActivity activity(RunPhase::kRunning, op);
  ExchangeGroup* group = op.state().exchange.get();
  if (group != nullptr) group->start();
  WorkerTeam& team = team_of(op);
  const OpThreadsScope threads(threads_of_each(parts.size()));
  const auto execute_part = [&](size_t i) {
    std::optional<PartOfRunScope> locked_by_caller;
    if (i > 0 && options_.exclusive) locked_by_caller.emplace(graph_);  // part 0 is the caller's
    execute(parts[i], group, i);
  };
  const auto failure = team.run(execute_part, [&](size_t i) {
    if (group != nullptr) group->abort(i);
  });
  if (failure) rethrow_from(parts[failure->worker].op, failure->exception);
  for (Part& part : parts) run.take_results_of(part);
}

WorkerTeam& Session::team_of(const Op& op) {
  std::unique_ptr<WorkerTeam>& team = internals_->teams[&op.state()];
  const size_t size = op.state().members.size();
  if (!team) {
    const int threads = threads_of_each(size);
    team = std::make_unique<WorkerTeam>("tower", size, [threads] { set_op_threads(threads); });
  }
  return *team;
}

void Session::add_parts(const Op& op, std::vector<Part>& parts) {
  if (op.state().kind == Op::State::Kind::kProgram) parts.push_back({.op = op});
  for (const Op& member : op.state().members) add_parts(member, parts);
}

// All or none: a batch that others were to be used with goes back to its source when one of them
// does not come, so that the position of the data stays that of the last run.
void Session::take_batches(Run& run) {
  detail::HeldDatapoints held;
  size_t taken = 0;
  bool has_source = false;
  try {
    for (Part& part : run.parts) {
      has_source |= static_cast<bool>(part.op.state().feeder);
      take_batch(part, run.feeds);
      ++taken;
      if (part.has_batch && run.parts.size() > 1) held.add(part.inputs);
    }
    held.check("input");
  } catch (...) {
    while (taken-- > 0) {
      Part& part = run.parts[taken];
      if (part.has_batch) part.op.state().feeder.put_back(std::move(part.inputs));
    }
    throw;
  }
  if (has_source) ++runs_with_source_;
}

void Session::take_batch(Part& part, const Feeds& feeds) {
  const Op& op = part.op;
  const std::vector<TensorSpec>& specs = op.inputs();
  const InputFeeder& feeder = op.state().feeder;
  const auto fed = std::count_if(specs.begin(), specs.end(),
                                 [&](const TensorSpec& spec) { return feeds.contains(spec.name); });
  const bool has_all = std::all_of(specs.begin(), specs.end(), [&](const TensorSpec& spec) {
    return feeds.contains(spec.name) || spec.default_value;
  });
  if (fed == std::ssize(specs) || (has_all && (fed > 0 || !feeder))) return;
  TP_CHECK(static_cast<bool>(feeder), place_of(op),
           "the op has no input source, and was fed {} of {}. Feed: {}.", fed,
           counted(std::ssize(specs), "input"), join(input_names(op), ", "));
  const RunActivity activity(RunPhase::kInput, op);
  std::optional<InputFeeder::Batch> batch = feeder.next();
  if (!batch) throw EndOfData("The input source has no more data.");
  part.inputs = std::move(*batch);
  part.has_batch = true;
}

// Takes the fetches that this op gives and that no op before it did.
void Session::bind_inputs(Part& part, Run& run) {
  const Op& op = part.op;
  const std::vector<TensorSpec>& specs = op.inputs();
  if (part.has_batch) part.inputs = place_batch(specs, std::move(part.inputs));
  part.inputs.resize(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const auto feed = run.feeds.find(specs[i].name);
    if (feed != run.feeds.end()) part.inputs[i] = feed->second;
  }
  const at::Generator& generator = op.state().defaults_draw_from;
  if (generator.defined()) fill_defaults(specs, part.inputs, generator);
  for (size_t i = 0; i < specs.size(); ++i) {
    at::Tensor& input = part.inputs[i];
    specs[i].check(input);
    input = input.to(op.device());
  }
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
      if (op.inputs()[k].name != name) continue;
      run.values[i] = part.inputs[k].detach().clone();  // the data may use its buffer again
    }
  }
}

// Preparing locks the process before the graph. Where that may never come, functions are called.
void Session::make_ready(std::span<Part> parts, Run& run) {
  if (!run.lock.owns_lock()) run.lock = lock();
  if (std::all_of(parts.begin(), parts.end(), [&](Part& part) { return is_ready(part); })) return;
  run.lock.unlock();
  const PreparationLock preparation = wait_to_prepare(parts);
  run.lock.lock();
  for (Part& part : parts) {
    if (preparation) {
      prepare(part);
    } else {
      part.prepared = &executor_for(part.op).call_function(part.op, part.inputs, part.fetches);
    }
  }
}

// The thread that prepares may wait for this one: for a graph that an eager function of this thread
// has locked, or, in a function that is recorded, for what this thread predicts.
PreparationLock Session::wait_to_prepare(std::span<const Part> parts) {
  constexpr std::chrono::seconds kPatience{5};
  if (is_in_eager_call()) return try_lock_preparation(std::chrono::milliseconds(0));
  const bool takes_batches =
      std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.has_batch; });
  if (takes_batches) return lock_preparation();
  PreparationLock lock = try_lock_preparation(kPatience);
  if (!lock) {
    logging::warning(
        "Op '{}' ran eagerly once: another thread has been preparing an op for {} seconds.",
        parts.front().op.name(), kPatience.count());
  }
  return lock;
}

bool Session::is_ready(Part& part) {
  part.prepared = executor_for(part.op).find(part.op, part.inputs, part.fetches);
  return part.prepared != nullptr;
}

void Session::prepare(Part& part) {
  const RunActivity activity(RunPhase::kPreparing, part.op);
  telling_where(part.op, [&] {
    part.prepared = &executor_for(part.op).prepare(part.op, part.inputs, part.fetches);
  });
}

// With a frame of its own: functions that are called eagerly see nothing of their surroundings.
void Session::execute(Part& part, ExchangeGroup* group, size_t index) {
  const FreshFrame frame;
  const MemberScope member(group, index);
  std::optional<KeptLocked> kept_locked;
  if (options_.exclusive) kept_locked.emplace(graph_);
  telling_where(part.op, [&] { part.results = part.prepared->run(part.inputs); });
}

void Session::check_feeds(const Op& op, const Feeds& feeds) const {
  for (const auto& [name, value] : feeds) {
    TP_CHECK(op.has_input(name), place_of(op), "'{}' was fed but is not an input. {}", name,
             did_you_mean(name, input_names(op)));
  }
}

std::unique_lock<std::recursive_mutex> Session::lock() {
  return options_.exclusive ? graph_.lock_variables() : std::unique_lock(own_mutex_);
}

Trace Session::trace(const Op& op) {
  TP_CHECK(op && op.state().kind == Op::State::Kind::kProgram, "trace",
           "'{}' is not a recorded function. Pass an op made by define().", op.name());
  {
    const auto held = lock();
    if (const Trace* trace = executor_for(op).recorded(op)) return *trace;
  }
  std::vector<at::Tensor> inputs;
  for (const TensorSpec& spec : op.inputs()) inputs.push_back(spec.trial_value(op.device()));
  const FunctionScope scope(options_.precision);
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
