// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/detail/callbacks.h"

#include <csignal>

#include "tensorpack/graph/chief_only.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/error_context.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {
namespace {

constexpr std::string_view kStatePrefix = "callback/";

// Every callback by the key of its state. Names may repeat, the order of the list does not change.
std::map<std::string, Callback*> by_state_key(const OwnedList<Callback>& callbacks) {
  std::map<std::string, int> seen;
  std::map<std::string, Callback*> keys;
  for (const Callback& callback : callbacks) {
    std::string key = fmt::format("{}{}", kStatePrefix, callback.name());
    const int number = ++seen[key];
    if (number > 1) key += fmt::format("#{}", number);
    keys.emplace(std::move(key), const_cast<Callback*>(&callback));
  }
  return keys;
}

void load_state(Callback& callback, const std::string& state) {
  try {
    callback.load_state(state);
  } catch (const std::exception& error) {
    throw make_error(callback.name(),
                     "its state in the checkpoint is damaged: {} Use another checkpoint.",
                     error.what());
  }
}

}  // namespace

template <typename Action>
void Callbacks::guarded(const Callback& callback, Action action) const {
  if (!runs_in_chief_alone(callback)) return action();
  const std::function<std::string()> name = [&] { return callback.name(); };
  const ChiefOnlyScope scope(name, callback.graph().variables(), variables_of_chief_);
  action();
}

/// A callback that runs in the chief alone, as a hook of runs that all processes make.
class Callbacks::GuardedHook final : public Hook {
 public:
  GuardedHook(const Callbacks& callbacks, Callback& callback)
      : callbacks_(callbacks), callback_(callback) {}

  std::string name() const override { return callback_.name(); }
  RunArgs before_run(RunContext& context) override {
    RunArgs args;
    callbacks_.guarded(callback_, [&] { args = callback_.before_run(context); });
    return args;
  }
  void after_run(RunContext& context, const FetchedValues& values) override {
    callbacks_.guarded(callback_, [&] { callback_.after_run(context, values); });
  }

 private:
  const Callbacks& callbacks_;
  Callback& callback_;
};

Callbacks::Callbacks(OwnedList<Callback> callbacks) : callbacks_(std::move(callbacks)) {}

Callbacks::~Callbacks() = default;

// Calls a method of every callback; what one of them throws says whose it was.
template <typename Method>
void Callbacks::call_each(const char* name, Method method) {
  Callback* current = nullptr;
  try {
    for (Callback& callback : callbacks_) {
      current = &callback;
      guarded(callback, [&] { method(callback); });
    }
  } catch (...) {
    rethrow_with(fmt::format("in {}() of {}", name, current->name()));
  }
}

std::vector<Hook*> Callbacks::hooks() {
  std::vector<Hook*> hooks;
  for (Callback& callback : callbacks_) {
    if (runs_in_chief_alone(callback)) {
      guarded_hooks_.push_back(std::make_unique<GuardedHook>(*this, callback));
      hooks.push_back(guarded_hooks_.back().get());
    } else {
      hooks.push_back(&callback);
    }
  }
  return hooks;
}

// What callbacks assign here reaches all: the chief's variables are broadcast afterwards.
void Callbacks::setup_graph(TrainerBase& trainer) {
  for (Callback& callback : callbacks_) callback.attach(trainer);
  call_each("setup_graph", [&](Callback& callback) {
    const size_t before = trainer.variables().size();
    callback.setup_graph();
    if (trainer.processes() == nullptr || !callback.chief_only()) return;
    const std::deque<Variable>& all = trainer.variables().all();
    for (size_t i = before; i < all.size(); ++i) variables_of_chief_.insert(&all[i]);
  });
  has_other_processes_ = trainer.processes() != nullptr;
}

void Callbacks::before_train() {
  call_each("before_train", [](Callback& callback) { callback.before_train(); });
  after_triggers();
}

void Callbacks::before_epoch() {
  call_each("before_epoch", [](Callback& callback) { callback.before_epoch(); });
}

void Callbacks::trigger_step() {
  call_each("trigger_step",
            [&](Callback& callback) { let_give_up(callback, [&] { callback.trigger_step(); }); });
  after_triggers();
}

void Callbacks::after_epoch() {
  call_each("after_epoch", [](Callback& callback) { callback.after_epoch(); });
}

bool Callbacks::request_to_save() {
  bool is_saved = false;
  call_each("on_request_to_save",
            [&](Callback& callback) { is_saved |= callback.on_request_to_save(); });
  return is_saved;
}

// A signal to save and end may end one of them, such as a long validation, and not the rest: other
// processes wait for what saves. The trainer looks for the signal afterwards.
template <typename Action>
void Callbacks::let_give_up(const Callback& callback, Action action) const {
  try {
    action();
  } catch (const Interrupted& interrupted) {
    const bool others_are_in_it = has_other_processes_ && !callback.chief_only();
    const bool all_are_to_save = pending_signal() != 0 && interrupted.signal() != SIGINT;
    if (others_are_in_it || !all_are_to_save) throw;
    logging::warning("{} did not finish: {}.", callback.name(), interrupted.what());
  }
}

void Callbacks::trigger_epoch() {
  std::exception_ptr stop;
  std::vector<std::pair<std::string, double>> times;
  call_each("trigger_epoch", [&](Callback& callback) {
    const Timer timer;
    try {
      let_give_up(callback, [&] { callback.trigger_epoch(); });
    } catch (const StopTraining&) {
      if (!stop) stop = std::current_exception();
    }
    times.emplace_back(callback.name(), timer.seconds());
  });
  after_triggers();
  const std::string slow = detail::describe_callback_times(times);
  if (!slow.empty()) logging::info("{}", slow);
  if (stop) std::rethrow_exception(stop);
}

void Callbacks::after_triggers() {
  call_each("after_triggers", [](Callback& callback) { callback.after_triggers(); });
}

std::exception_ptr Callbacks::after_train() noexcept {
  std::exception_ptr first;
  for (Callback& callback : callbacks_) {
    try {
      callback.after_train();
    } catch (...) {
      if (!first) {
        first = with_context(std::current_exception(), "in after_train() of " + callback.name());
      }
      try {
        throw;
      } catch (const std::exception& error) {
        logging::error("{} failed in after_train: {}", callback.name(), describe(error));
      } catch (...) {
        logging::error("{} failed in after_train.", callback.name());
      }
    }
  }
  return first;
}

ReportedScalars Callbacks::reports() const {
  ReportedScalars all = no_scalars();
  for (const Callback& callback : callbacks_) {
    const ReportedScalars more = callback.reports();
    all.names.insert(all.names.end(), more.names.begin(), more.names.end());
    all.are_all = all.are_all && more.are_all;
  }
  return all;
}

std::vector<FingerprintPart> Callbacks::fingerprints() const {
  std::vector<FingerprintPart> parts;
  for (const auto& [key, callback] : by_state_key(callbacks_)) {
    std::vector<std::string> lines = callback->fingerprint();
    if (lines.empty()) continue;
    parts.push_back(
        {.name = key.substr(kStatePrefix.size()), .lines = std::move(lines), .may_grow = true});
  }
  return parts;
}

std::map<std::string, std::string> Callbacks::save_states() const {
  std::map<std::string, std::string> states;
  for (const auto& [key, callback] : by_state_key(callbacks_)) {
    std::string state = callback->save_state();
    if (!state.empty()) states.emplace(key, std::move(state));
  }
  return states;
}

void Callbacks::load_states(const std::map<std::string, std::string>& states, bool has_all) {
  std::vector<std::string> without_state, without_callback;
  const auto by_key = by_state_key(callbacks_);
  for (const auto& [key, callback] : by_key) {
    const auto found = states.find(key);
    if (found != states.end()) {
      load_state(*callback, found->second);
    } else if (!callback->save_state().empty()) {
      without_state.push_back(key.substr(kStatePrefix.size()));
    }
  }
  for (const auto& [key, state] : states) {
    if (!has_all || !key.starts_with(kStatePrefix) || by_key.contains(key)) continue;
    without_callback.push_back(key.substr(kStatePrefix.size()));
  }
  if (!without_state.empty()) {
    logging::warning("The checkpoint has no state of these callbacks: {}.", join(without_state));
  }
  if (!without_callback.empty()) {
    logging::warning("The checkpoint has states of callbacks that are not there now: {}.",
                     join(without_callback));
  }
}

std::string detail::describe_callback_times(
    const std::vector<std::pair<std::string, double>>& times) {
  double total = 0;
  for (const auto& [name, seconds] : times) total += seconds;
  if (total < 2) return "";
  std::vector<std::string> slow;
  for (const auto& [name, seconds] : times) {
    if (seconds > 1 && seconds > 0.3 * total) slow.push_back(name + ": " + humanize_time(seconds));
  }
  const std::string text = "Callbacks took " + humanize_time(total) + " in total";
  return slow.empty() ? text + "." : text + "; " + join(slow, "; ") + ".";
}

}  // namespace tensorpack
