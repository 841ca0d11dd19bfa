// SPDX-License-Identifier: Apache-2.0
// Runs some iterations. What an iteration is, is up to you.
//
//   for (epoch_num = starting_epoch; epoch_num <= max_epoch; ++epoch_num)
//     for (local_step = 0; local_step < steps_per_epoch; ++local_step)
//       run_step();
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/detail/callbacks.h"
#include "tensorpack/callbacks/trainer_base.h"
#include "tensorpack/session/session_init.h"
#include "tensorpack/utils/owned_list.h"
#include "tensorpack/utils/seed.h"

namespace tensorpack {

/// The default of max_epoch: more than anyone waits for.
inline constexpr int64_t kDefaultMaxEpoch = 9'999'999;

/// What to train with and how long: epochs starting_epoch to max_epoch are run, both included.
struct TrainOptions {
  OwnedList<Callback> callbacks = {};
  /// Appended after the user's: {A(), B()}. default_callbacks() when there is no list, and none for
  /// an empty one, OwnedList<Callback>().
  OptionalList<Callback> extra_callbacks = {};
  /// default_monitors() when there is no list, and none for an empty one.
  OptionalList<MonitorBase> monitors = {};
  SessionOptions session = {};
  Owned<SessionInit> session_init = {};
  /// Required. The period of callbacks; it has nothing to do with the size of a data set. 0 is
  /// legal.
  std::optional<int64_t> steps_per_epoch = {};
  int64_t starting_epoch = 1;
  int64_t max_epoch = kDefaultMaxEpoch;
  /// How many steps of the first epoch were made by an earlier run.
  int64_t starting_step = 0;
};

/// Stop when the cost is not finite, show progress, report moving averages.
OwnedList<Callback> default_callbacks();
/// Write event files, stats.json and report.html, print scalars.
OwnedList<MonitorBase> default_monitors();

/// Base of all trainers. It assumes nothing but the loop: say what an iteration is by setting
/// train_op, or by overriding run_step().
class Trainer : public TrainerBase {
 public:
  /// The graph may have been built before.
  explicit Trainer(std::shared_ptr<Graph> graph = std::make_shared<Graph>());
  /// On a graph of its own: SimpleTrainer trainer({.device = torch::kCUDA}).
  explicit Trainer(GraphOptions options);
  ~Trainer() override;

  /// What one step runs unless run_step() is overridden.
  void set_train_op(Op op) { train_op_ = std::move(op); }

  /// One iteration: by default one hooked run of train_op. Use hooked_sess() for the runs that
  /// count as a step, sess() for others.
  virtual void run_step();

  /// Adds a callback before setup_callbacks(). False, with a warning, when it is for the chief
  /// alone and this process is not the chief.
  bool register_callback(Owned<Callback> callback);

  /// setup_callbacks(), initialize(), main_loop(): each may be called once.
  void train(TrainOptions options);
  /// The same with default callbacks and monitors where none are given.
  void train_with_defaults(TrainOptions options);

  /// Calls setup(), adds the step counter, `callbacks` and `monitors` to the list, in this order,
  /// and calls setup_graph() on all.
  void setup_callbacks(OwnedList<Callback> callbacks, OwnedList<MonitorBase> monitors);
  /// Creates the session and the hooks, restores variables and the states of callbacks, makes the
  /// graph final. Of several processes the chief restores, and the others get what it has.
  void initialize(SessionOptions options, Owned<SessionInit> init);
  /// Runs the loop, by the steps and epochs of the options; the rest of them is not looked at.
  /// Returns after StopTraining or the end of data, which ends its epoch early: what was trained is
  /// validated and saved as at the end of any other; throws Interrupted after SIGINT or SIGTERM,
  /// and whatever else was thrown, in each case after after_train() of every callback.
  void main_loop(const TrainOptions& options);

  OnlinePredictor get_predictor(std::vector<std::string> input_names,
                                std::vector<std::string> output_names,
                                std::optional<c10::Device> device = {}) override;
  ReportedScalars reported_scalars() const override;
  /// With the seed that the data follows from.
  std::map<std::string, std::string> callback_states() const override;

 protected:
  /// Called once, at the start of setup_callbacks(): override it to define what a step is, where
  /// that needs the object of the derived class and not only its constructor.
  virtual void setup() { _setup(); }
  /// The older name of setup().
  virtual void _setup() {}

  /// Has several processes train together, each with a trainer of its own; before anything else.
  void set_processes(std::shared_ptr<ProcessGroup> processes);

  /// What is added to the text of an exception from run_step(): which data it worked on.
  virtual std::string place_of_step() const { return "in a training step"; }

  /// What the fingerprint of the program says of its data.
  virtual std::vector<FingerprintPart> data_fingerprint() const { return {}; }

  /// Makes hooked_sess() of all callbacks. Override to have several groups of hooks.
  virtual void initialize_hooks();
  Callbacks& callbacks() { return callbacks_; }

 private:
  void restore(SessionInit* init);
  void settle_seed(const std::optional<StateTexts>& saved);
  void check_same_graph();
  void agree_on_loop();
  void begin_fingerprint();
  void complete_fingerprint();
  void compare_with_saved_program() const;
  void call_once(const char* method);
  void call_after(const char* earlier, const char* method) const;
  void run_epochs(class SignalWatch& signals);
  void run_epoch(SignalWatch& signals, class SharedMachine& machine, int64_t starting_step);
  std::exception_ptr run_step_or_end();
  void end_epoch_early(const std::exception_ptr& end_of_data, int64_t steps);
  void heed_signals(SignalWatch& signals);
  [[noreturn]] void end_by_signal(int signal);

  Callbacks callbacks_;
  std::optional<SavedProgram> saved_program_;  // that this training is resumed from
  std::set<std::string> called_;
  TrainingSeed seed_;
  size_t model_variables_ =
      0;  // those made before the callbacks', which the chief's alone may make
};

}  // namespace tensorpack
