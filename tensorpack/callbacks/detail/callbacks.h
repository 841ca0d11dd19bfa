// SPDX-License-Identifier: Apache-2.0
// All callbacks of a training.
#pragma once

#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

/// Runs each method over all callbacks, in the order of the list. Exceptions pass through at once,
/// unless a method says otherwise, with the name of the callback (see utils/error_context.h).
///
/// Of several processes, a callback that runs in the chief alone may not assign what all have: what
/// it does from before_train() to the end of the last epoch is in a ChiefOnlyScope.
class Callbacks {
 public:
  explicit Callbacks(OwnedList<Callback> callbacks = {});
  ~Callbacks();

  OwnedList<Callback>& all() { return callbacks_; }
  /// The callbacks as a HookedSession takes them. Valid until a callback is added.
  std::vector<Hook*> hooks();

  /// Attaches every callback to `trainer` before the first is set up.
  void setup_graph(TrainerBase& trainer);
  void before_train();
  void before_epoch();
  void trigger_step();
  void after_epoch();
  /// Between two steps. False if none of them saves.
  bool request_to_save();

  /// Logs which callbacks were slow. A StopTraining is rethrown only after the others have run:
  /// whoever stops the training does not keep the epoch from being saved and written.
  void trigger_epoch();

  /// Runs every callback even when some throw, logs each error, and returns the first.
  std::exception_ptr after_train() noexcept;

  /// What the callbacks report, together.
  ReportedScalars reports() const;

  /// What the callbacks will do to the training, a part for each that says something.
  std::vector<FingerprintPart> fingerprints() const;

  /// What the callbacks have to save, by "callback/<name>", and "callback/<name>#2" for the second
  /// one of that name.
  std::map<std::string, std::string> save_states() const;

  /// Hands each callback what save_states() had of it; other entries are ignored. States that no
  /// callback takes, and callbacks without theirs, are told in the log. Throws Error that names the
  /// callback when a state is damaged. Unless the list `has_all` callbacks that there were, states
  /// that none takes are left to the process that has them.
  void load_states(const std::map<std::string, std::string>& states, bool has_all = true);

 private:
  class GuardedHook;

  void after_triggers();
  bool runs_in_chief_alone(const Callback& callback) const {
    return has_other_processes_ && callback.chief_only();
  }
  /// Calls `action`, in a ChiefOnlyScope if other processes do not run the callback.
  template <typename Action>
  void guarded(const Callback& callback, Action action) const;
  template <typename Method>
  void call_each(const char* name, Method method);
  /// Calls a part of the callback that a signal to save and end may cut short.
  template <typename Action>
  void let_give_up(const Callback& callback, Action action) const;

  OwnedList<Callback> callbacks_;
  bool has_other_processes_ = false;
  std::set<const Variable*> variables_of_chief_;      // that the others do not have
  std::vector<std::unique_ptr<Hook>> guarded_hooks_;  // all that hooks() gave
};

namespace detail {

/// The line about slow callbacks, given (name, seconds) of each; empty when they took less than
/// two seconds together.
std::string describe_callback_times(const std::vector<std::pair<std::string, double>>& times);

}  // namespace detail

}  // namespace tensorpack
