// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/program_executor.h"

#include <ATen/ATen.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>

#include "tensorpack/graph/host_copy.h"
#include "tensorpack/graph/phase_log.h"
#include "tensorpack/graph/record_op.h"
#include "tensorpack/graph/state_guard.h"
#include "tensorpack/graph/tensor_key.h"
#include "tensorpack/session/difference.h"
#include "tensorpack/session/function_scope.h"
#include "tensorpack/session/verify.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

constexpr size_t kManyVariants = 8;

// All that stands around the functions of ops while they are recorded and verified.
class [[nodiscard]] PreparationScope {
 public:
  PreparationScope(const Op& op, Precision precision, const Lowering& lowering)
      : function_(precision), results_on_host_(lowering.results_on_host(op)) {
    if (auto watch = lowering.watch_over_function(op)) watch_.emplace(std::move(watch));
  }

 private:
  FunctionScope function_;
  ResultsOnHostScope results_on_host_;
  std::optional<WatchScope> watch_;
};

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

int64_t bytes_of_variables(Graph& graph) {
  int64_t bytes = 0;
  for (const Variable& variable : graph.variables().all()) {
    bytes += static_cast<int64_t>(variable.tensor.nbytes());
  }
  return bytes;
}

// Of the state, and of what function and program make of it, twice.
int64_t bytes_to_verify(Graph& graph) { return 5 * bytes_of_variables(graph); }

// Which inputs the program writes to.
std::vector<char> written_inputs(const Trace& trace) {
  std::set<StorageId> written;
  for (const Node& node : trace.nodes) written.insert(node.writes.begin(), node.writes.end());
  std::vector<char> is_written;
  for (ValueId id : trace.inputs) {
    is_written.push_back(written.contains(trace.values[id].storage) ? 1 : 0);
  }
  return is_written;
}

std::string shapes_of(const Trace& trace) {
  std::vector<std::string> shapes;
  for (ValueId id : trace.inputs) {
    shapes.push_back(fmt::format("[{}]", fmt::join(trace.values[id].sizes, ", ")));
  }
  return fmt::format("{}", fmt::join(shapes, ", "));
}

// Verifying takes a second batch on the device; what fits without must train without.
void warn_of_unverified(const Op& op) {
  logging::warning(
      "Op '{}' was not verified: {} has no room for another batch. Train a few steps with a "
      "smaller one if the tower function is new.",
      op.name(), op.device().str());
}

// Kernels were chosen for the layout of the recording.
std::vector<at::Tensor> laid_out_as(const Trace& trace, std::vector<at::Tensor> inputs) {
  at::NoGradGuard no_grad;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Value& recorded = trace.values[trace.inputs[i]];
    if (inputs[i].strides() == recorded.strides) continue;
    inputs[i] = at::empty_strided(recorded.sizes, recorded.strides, recorded.options)
                    .copy_(inputs[i].detach());
  }
  return inputs;
}

[[noreturn]] void fail_after_change(const Op& op, int64_t run, const TraceChange& change) {
  throw make_error(
      "verify '" + op.name() + "'",
      "before run {}, the function does something else than when it was recorded; first at {}. "
      "Something that it reads on the host has changed: a number that it captured, a member, a "
      "captured tensor that was replaced, a random number, the clock. Keep it in a variable, or in "
      "a tensor that is written in place, by all ranks where there are several "
      "(set_chief_only(false) on the callback). If it is changed on purpose, set it by an "
      "ObjAttrParam or call Graph::announce_change(); or use ExecutorKind::kEager.",
      run, change.where);
}

// Has the trace refer to the memory that variables have now. False if one is laid out otherwise
// than it was, which the trace says nothing about.
bool follow_variables(Graph& graph, Trace& trace) {
  for (Value& value : trace.values) {
    if (value.kind != ValueKind::kVariable) continue;
    const at::Tensor& variable = graph.variables().at(value.name).tensor;
    if (!variable.has_storage() || is_same_memory(variable, value.tensor)) continue;
    if (variable.sizes() != value.sizes || variable.strides() != value.strides ||
        variable.dtype() != value.options.dtype() || variable.device() != value.options.device()) {
      return false;
    }
    value.tensor = variable.detach();
  }
  return true;
}

// On another batch they may not: then the runs before were wrong, and the change is not seen again.
void warn_of_other_operators(const Op& op, const TraceChange& change) {
  logging::warning_once(
      "Op '{}' is recorded again: its function does something else than before, first at {}. On "
      "this batch it computes the same. Where it may differ on others, runs before were wrong: "
      "keep what the function reads on the host in a variable.",
      op.name(), change.where);
}

}  // namespace

// What a caller asks for, in its order, possibly twice.
class ProgramExecutor::Request final : public PreparedOp {
 public:
  Request(std::vector<std::string> fetches, const std::set<std::string>& distinct,
          const Variant& variant, LoweredProgram& program)
      : fetches_(std::move(fetches)),
        is_written_(written_inputs(variant.trace)),
        watch_(*variant.watch),
        program_(program) {
    std::vector<bool> seen(distinct.size(), false);
    for (const std::string& name : fetches_) {
      const auto position =
          static_cast<size_t>(std::distance(distinct.begin(), distinct.find(name)));
      sources_.push_back({position, seen[position]});
      seen[position] = true;
    }
  }

  const std::vector<std::string>& fetches() const { return fetches_; }
  LoweredProgram& program() const { return program_; }

  std::vector<at::Tensor> run(const std::vector<at::Tensor>& inputs) override {
    watch_.count_run();
    const std::vector<at::Tensor> results = program_.runner->run(without_writes_to(inputs));
    std::vector<at::Tensor> values;
    values.reserve(sources_.size());
    for (const Source& source : sources_) {
      const at::Tensor& result = results[source.position];
      values.push_back(source.is_repeated ? result.clone() : result);
    }
    return values;
  }

 private:
  struct Source {
    size_t position;  // in what the runner returns
    bool is_repeated;
  };

  // A batch may be the user's own data: what a program writes to is a copy.
  std::vector<at::Tensor> without_writes_to(std::vector<at::Tensor> inputs) const {
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (is_written_[i]) inputs[i] = inputs[i].clone();
    }
    return inputs;
  }

  std::vector<std::string> fetches_;
  std::vector<char> is_written_;
  RecordingWatch& watch_;
  LoweredProgram& program_;
  std::vector<Source> sources_;  // of each fetch
};

ProgramExecutor::ProgramExecutor(Graph& graph, ExecutorOptions options,
                                 std::unique_ptr<Lowering> lowering)
    : graph_(graph), options_(options), lowering_(std::move(lowering)), eager_(options) {}

ProgramExecutor::~ProgramExecutor() = default;

template <typename Action>
auto ProgramExecutor::with_room(const Action& action) {
  while (true) {
    try {
      return action();
    } catch (const c10::OutOfMemoryError&) {
      if (!give_back_memory()) throw;
    }
  }
}

PreparedOp* ProgramExecutor::find(const Op& op, const std::vector<at::Tensor>& inputs,
                                  const std::vector<std::string>& fetches) {
  // What another function is recorded of must be the same each time, whatever is prepared here.
  if (is_recording()) return &eager_.prepare(op, inputs, fetches);
  Variant* const variant = find_variant(variants_[&op.state()], inputs);
  if (variant == nullptr && run_eagerly_.contains(&op.state())) {
    return &eager_.prepare(op, inputs, fetches);
  }
  if (variant == nullptr || is_due_to_be_verified(*variant)) return nullptr;
  return find_request(*variant, fetches);
}

PreparedOp& ProgramExecutor::prepare(const Op& op, const std::vector<at::Tensor>& inputs,
                                     const std::vector<std::string>& fetches) {
  Variants& variants = variants_[&op.state()];
  Variant* variant = find_variant(variants, inputs);
  std::unique_ptr<RecordingWatch> before;  // of a recording that is no longer right
  if (variant != nullptr && is_due_to_be_verified(*variant) &&
      !does_the_same(op, *variant, inputs)) {
    before = std::move(variant->watch);
    variants.pop_front();  // where find_variant() left it
    variant = nullptr;
  }
  if (variant != nullptr) {
    if (Request* const request = find_request(*variant, fetches)) return *request;
  } else if (variants.size() >= kMostRecordings) {
    return prepare_eagerly(op, inputs, fetches);
  }
  while (true) {
    try {
      Request& request = prepare_anew(op, inputs, fetches);
      if (before) variants.front().watch->count_on_from(*before);
      return request;
    } catch (const c10::OutOfMemoryError&) {
      if (!make_room(op)) throw;
    }
  }
}

PreparedOp& ProgramExecutor::call_function(const Op& op, const std::vector<at::Tensor>& inputs,
                                           const std::vector<std::string>& fetches) {
  return eager_.prepare(op, inputs, fetches);
}

PreparedOp& ProgramExecutor::prepare_eagerly(const Op& op, const std::vector<at::Tensor>& inputs,
                                             const std::vector<std::string>& fetches) {
  if (run_eagerly_.insert(&op.state()).second) {
    logging::warning(
        "Op '{}' was recorded for {} different input shapes. From now on it runs eagerly on other "
        "shapes, which takes longer than a recorded program and may round differently: pad the "
        "data to a few shapes.",
        op.name(), kMostRecordings);
  }
  return eager_.prepare(op, inputs, fetches);
}

// One way after the other; false if there is none left.
bool ProgramExecutor::make_room(const Op& op) {
  if (give_back_memory()) return true;
  if (!lowering_->can_save_memory(op)) return false;
  logging::warning(
      "{} has no room for op '{}' as it is. From now on results that are cheap to compute are made "
      "again in the backward pass: steps hold less memory and take longer.",
      op.device().str(), op.name());
  lowering_->save_memory();
  return true;
}

// What programs hold between their runs.
bool ProgramExecutor::give_back_memory() {
  bool was_some = false;
  for (auto& [op, variants] : variants_) {
    for (Variant& variant : variants) {
      for (auto& [fetches, program] : variant.programs) {
        if (program) was_some |= program->runner->give_back_memory();
      }
    }
  }
  return was_some;
}

const Trace* ProgramExecutor::recorded(const Op& op) const {
  const auto found = variants_.find(&op.state());
  return found == variants_.end() || found->second.empty() ? nullptr : &found->second.front().trace;
}

ProgramExecutor::Variant* ProgramExecutor::find_variant(Variants& variants,
                                                        const std::vector<at::Tensor>& inputs) {
  for (auto variant = variants.begin(); variant != variants.end(); ++variant) {
    if (!fits(variant->trace, inputs)) continue;
    if (variant != variants.begin()) variants.splice(variants.begin(), variants, variant);
    return &variants.front();
  }
  return nullptr;
}

ProgramExecutor::Request* ProgramExecutor::find_request(Variant& variant,
                                                        const std::vector<std::string>& fetches) {
  auto& requests = variant.requests;
  for (auto request = requests.begin(); request != requests.end(); ++request) {
    if ((*request)->fetches() != fetches) continue;
    if (request != requests.begin()) requests.splice(requests.begin(), requests, request);
    return requests.front().get();
  }
  return nullptr;
}

// Forgets the one used least recently, and with the last request of a program the program.
void ProgramExecutor::add_request(Variant& variant, std::unique_ptr<Request> request) {
  auto& requests = variant.requests;
  requests.push_front(std::move(request));
  if (requests.size() <= kMostFetchLists) return;
  requests.pop_back();
  std::erase_if(variant.programs, [&](const auto& named) {
    return std::none_of(requests.begin(), requests.end(),
                        [&](const auto& kept) { return &kept->program() == named.second.get(); });
  });
}

ProgramExecutor::Request& ProgramExecutor::prepare_anew(const Op& op,
                                                        const std::vector<at::Tensor>& inputs,
                                                        const std::vector<std::string>& fetches) {
  const PreparationScope scope(op, options_.precision, *lowering_);
  StateGuard guard(graph_, {op.state().generator});
  Variants& variants = variants_[&op.state()];
  Variant* known = find_variant(variants, inputs);
  const std::set<std::string> distinct(fetches.begin(), fetches.end());
  const std::vector<std::string> names(distinct.begin(), distinct.end());
  if (known != nullptr) {
    guard.add(known->foreign.saved_again());
    LoweredProgram& program = program_for(op, *known, inputs, names, guard);
    add_request(*known, std::make_unique<Request>(fetches, distinct, *known, program));
    known->watch->settle();
    return *known->requests.front();
  }
  const HostCopiesAhead copies(
      op.device(), options_.verify ? bytes_to_verify(graph_) : bytes_of_variables(graph_));
  Variant variant = record_variant(op, inputs, guard);
  LoweredProgram& program = program_for(op, variant, inputs, names, guard);
  add_request(variant, std::make_unique<Request>(fetches, distinct, variant, program));
  variant.watch->settle();
  add_variant(op, variants, std::move(variant));
  return *variants.front().requests.front();
}

ProgramExecutor::Variant ProgramExecutor::record_variant(const Op& op,
                                                         const std::vector<at::Tensor>& inputs,
                                                         StateGuard& guard) {
  ++recordings_;
  const int64_t announced_changes = graph_.announced_changes();
  // What it was recorded on and what it gave is as large as a batch and its activations: let go.
  Recording recording = record_op(graph_, op, inputs).recording;
  guard.restore();
  for (const std::string& remark : recording.remarks) {
    logging::debug("Recording '{}': {}.", op.name(), remark);
  }
  guard.add(recording.foreign);
  auto watch = std::make_unique<RecordingWatch>(graph_, announced_changes, recording);
  const bool is_first = variants_[&op.state()].empty();
  if (!is_first) watch->compare_rarely();  // the same function, on other shapes
  return {std::move(recording.trace),
          std::move(recording.foreign),
          std::move(watch),
          {},
          false,
          {},
          {}};
}

ProgramExecutor::LoweredProgram& ProgramExecutor::program_for(
    const Op& op, Variant& variant, const std::vector<at::Tensor>& inputs,
    const std::vector<std::string>& fetches, StateGuard& guard) {
  std::unique_ptr<LoweredProgram>& known = variant.programs[fetches];
  if (known) return *known;
  Trace optimized = variant.trace;
  {
    const PhaseLog phase(op.name(), op.device(), "optimizing the program");
    lowering_->optimize(op, optimized, fetches);
  }
  if (options_.verify) {
    guard.save_what_is_written_by(variant.trace);
    const bool is_first = variant.programs.size() == 1;
    try {
      with_room([&] {
        verify(
            graph_, {op, variant.trace, optimized, fetches, *lowering_, is_first},
            [&] { return another_batch(inputs); }, guard);
      });
    } catch (const c10::OutOfMemoryError&) {
      if (lowering_->can_save_memory(op)) throw;
      warn_of_unverified(op);
    }
  }
  auto runner = lowering_->make_runner(op, optimized, fetches);
  known = std::make_unique<LoweredProgram>(
      LoweredProgram{fetches, std::move(optimized), std::move(runner)});
  return *known;
}

bool ProgramExecutor::is_due_to_be_verified(const Variant& variant) const {
  const RecordingWatch& watch = *variant.watch;
  return watch.is_change_announced() || watch.sees_moved_variable() ||
         (options_.verify && options_.verify_again &&
          (watch.is_due_by_count() || watch.sees_change()));
}

// Records the function again, on the batch of the run. False if it has to be prepared again: it
// does something else on purpose, or its variables lie in other memory. Throws if it does something
// else and no change was announced.
bool ProgramExecutor::does_the_same(const Op& op, Variant& variant,
                                    const std::vector<at::Tensor>& inputs) {
  const bool has_moved = variant.watch->sees_moved_variable();
  if (has_moved && !follow_variables(graph_, variant.trace)) return false;
  const int64_t announced_changes = graph_.announced_changes();
  variant.watch->postpone();
  std::optional<Recording> now = record_on_fake_results(op, variant, inputs);
  if (now && change_between(variant.trace, now->trace).kind == TraceChange::Kind::kNone) {
    variant.watch->renew(announced_changes, *now);
    return !has_moved;
  }
  if (!variant.watch->is_change_announced()) variant.watch->compare_rarely();
  return does_the_same_computing(op, variant, inputs, announced_changes, std::move(now)) &&
         !has_moved;
}

// Nothing if only a call that computes can tell.
std::optional<Recording> ProgramExecutor::record_on_fake_results(
    const Op& op, Variant& variant, const std::vector<at::Tensor>& inputs) {
  if (variant.needs_results) return std::nullopt;
  const FunctionScope scope(options_.precision);
  StateGuard guard(graph_, {op.state().generator});
  if (!variant.fake_results) variant.fake_results = std::make_unique<FakeResults>(variant.trace);
  std::optional<FakeRecording> now = tensorpack::record_on_fake_results(
      graph_, op, laid_out_as(variant.trace, inputs), *variant.fake_results, guard);
  variant.needs_results = !now;
  if (!now) return std::nullopt;
  if (now->has_computed && !variant.watch->is_change_announced()) variant.watch->compare_rarely();
  return std::move(now->recording);
}

bool ProgramExecutor::does_the_same_computing(const Op& op, Variant& variant,
                                              const std::vector<at::Tensor>& inputs,
                                              int64_t announced_changes,
                                              std::optional<Recording> now) {
  const PreparationScope scope(op, options_.precision, *lowering_);
  StateGuard guard(graph_, {op.state().generator});
  const HostCopiesAhead copies(op.device(), bytes_of_variables(graph_));
  RecordingWatch& watch = *variant.watch;
  try {
    if (!now) {
      now = with_room([&] {
        guard.restore();
        return record_op(graph_, op, laid_out_as(variant.trace, inputs)).recording;
      });
      guard.restore();
    }
    const TraceChange change = change_between(variant.trace, now->trace);
    if (change.kind != TraceChange::Kind::kNone) {
      if (watch.is_change_announced()) return false;
      guard.add(variant.foreign.saved_again());
      guard.add(now->foreign);
      if (!is_still_right(op, variant, change, now->trace, inputs, guard)) return false;
    }
    watch.renew(announced_changes, *now);
  } catch (const c10::OutOfMemoryError&) {
    warn_of_unverified(op);
  } catch (...) {
    watch.insist();
    throw;
  }
  return true;
}

// After an unannounced change: whether the program still computes what the function does.
// False if it has to be prepared again for later runs to do so; throws if it does not.
bool ProgramExecutor::is_still_right(const Op& op, const Variant& variant,
                                     const TraceChange& change, const Trace& now,
                                     const std::vector<at::Tensor>& inputs, StateGuard& guard) {
  using Kind = TraceChange::Kind;
  const auto computes_the_same = [&] {
    const std::vector<std::string> outputs = fetches_of(variant);
    const bool are_there = std::all_of(outputs.begin(), outputs.end(), [&](const auto& name) {
      return now.outputs.contains(name);
    });
    return are_there &&
           compute_the_same(
               op, variant.trace, now, outputs,
               [&] { return copies_on(op.device(), laid_out_as(variant.trace, inputs)); }, guard);
  };
  if (change.kind == Kind::kNumbers || (change.kind != Kind::kMemory && !computes_the_same())) {
    fail_after_change(op, variant.watch->next_run(), change);
  }
  if (change.kind == Kind::kOperators) {
    warn_of_other_operators(op, change);
  } else {
    logging::debug("Op '{}' computes the same from other memory before run {}: {}.", op.name(),
                   variant.watch->next_run(), change.where);
  }
  return change.kind == Kind::kContents;
}

std::vector<std::string> ProgramExecutor::fetches_of(const Variant& variant) {
  std::set<std::string> names;
  for (const auto& [fetches, program] : variant.programs) {
    names.insert(fetches.begin(), fetches.end());
  }
  return {names.begin(), names.end()};
}

void ProgramExecutor::add_variant(const Op& op, Variants& variants, Variant variant) {
  variants.push_front(std::move(variant));
  if (variants.size() == kManyVariants + 1) {
    logging::warning(
        "Op '{}' was recorded for {} different input shapes, now {}. Each takes about the time of "
        "a few steps: pad the data to a few shapes, or run the op with ExecutorKind::kEager. After "
        "{} it runs eagerly on other shapes.",
        op.name(), variants.size(), shapes_of(variants.front().trace), kMostRecordings);
  }
}

}  // namespace tensorpack
