// SPDX-License-Identifier: Apache-2.0
// Something that happens beside the training itself.
#pragma once

#include <string>
#include <vector>

#include "tensorpack/callbacks/trainer_base.h"
#include "tensorpack/session/hooked_session.h"

namespace tensorpack {

/// The order of calls, for every callback of the list in turn:
///
///   setup_graph()                             // once; the only place to define ops and variables
///   before_train()                            // once; the session exists and is restored
///   for each epoch:
///     before_epoch()                          // fast, please
///     for each step:
///       run_step()                            // of the trainer; around every hooked run in it:
///         before_run(), after_run()           //   fetch tensors along with the step
///       trigger_step()                        // light work only
///     after_epoch()                           // fast, please
///     trigger_epoch()                         // the place for real work; calls trigger()
///   after_train()                             // once, always, even after an exception
///
/// When all of them had their before_train(), trigger_step() or trigger_epoch(), those of the
/// monitors included, after_triggers() follows.
///
/// Everything runs on the training thread. Throw StopTraining anywhere in the loop to end training.
class Callback : public Hook {
 public:
  Callback() = default;
  ~Callback() override = default;

  virtual void setup_graph() {}
  virtual void before_train() {}
  virtual void before_epoch() {}
  virtual void trigger_step() {}
  virtual void after_epoch() {}
  virtual void trigger_epoch() { trigger(); }
  /// What the callback does, whenever it is due: at the end of every epoch unless scheduled
  /// otherwise.
  virtual void trigger() {}
  /// What all others did is done: the place to save it.
  virtual void after_triggers() {}
  virtual void after_train() {}
  /// Called before after_train() when SIGTERM or another signal but SIGINT ends the training, in
  /// the chief process, or in all that end after the same step: save what would be lost.
  virtual void on_terminate() {}
  /// Called after a step, the same one in all processes, when SIGUSR1 asks for a checkpoint;
  /// training goes on. Returns whether it saves one.
  virtual bool on_request_to_save() { return false; }

  /// What it needs to go on after a restart, as a text in UTF-8 for the checkpoint; empty for
  /// nothing.
  virtual std::string save_state() const { return ""; }
  /// Takes what save_state() gave, when a training is resumed: after setup_graph(), and before
  /// before_train(). Throws when it cannot be understood.
  virtual void load_state(const std::string& /*state*/) {}

  /// What it will do to the training, such as the values of a schedule, as lines `name = value`
  /// that tell it from that of a changed program. Asked before training; see AutoResumeOptions.
  virtual std::vector<std::string> fingerprint() const { return {}; }

  /// The scalars that it reports to the monitors; asked from before_train() on. A callback that
  /// says all of them lets others find misspelt names before the first step.
  virtual ReportedScalars reports() const { return {}; }

  /// The class's name, for messages, timings and the checkpoint.
  std::string name() const override;

  /// Whether it runs in the chief process alone. True unless a callback says otherwise.
  bool chief_only() const { return chief_only_; }
  void set_chief_only(bool value) { chief_only_ = value; }

  /// The training it belongs to; from setup_graph() on.
  TrainerBase& trainer() const;
  Graph& graph() const { return trainer().graph(); }
  int64_t epoch_num() const { return trainer().epoch_num(); }
  int64_t local_step() const { return trainer().local_step(); }
  int64_t global_step() const { return trainer().global_step(); }

  /// Called by the trainer, once, before setup_graph().
  void attach(TrainerBase& trainer) { trainer_ = &trainer; }

 protected:
  Callback(const Callback&) = default;
  Callback& operator=(const Callback&) = default;
  Callback(Callback&&) = default;
  Callback& operator=(Callback&&) = default;

 private:
  TrainerBase* trainer_ = nullptr;  // not owned: the trainer owns the callback
  bool chief_only_ = true;
};

}  // namespace tensorpack
