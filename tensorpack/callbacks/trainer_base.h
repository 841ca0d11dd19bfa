// SPDX-License-Identifier: Apache-2.0
// What a callback sees of the training it belongs to.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/checkpoint/fingerprint.h"
#include "tensorpack/graph/graph.h"
#include "tensorpack/monitors/monitors.h"
#include "tensorpack/session/hooked_session.h"
#include "tensorpack/session/session.h"
#include "tensorpack/tower/tower_func.h"
#include "tensorpack/tower/tower_handle.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/loop_state.h"

namespace tensorpack {

class OnlinePredictor;
class ProcessGroup;

/// A prediction tower to be built beside the training towers.
struct PredictionTowerOptions {
  std::string name = "InferenceTower";
  /// The trainer's own when empty; with it comes `inputs`.
  std::optional<TowerFunc> tower_func = {};
  std::vector<TensorSpec> inputs = {};
  std::optional<c10::Device> device = {};  ///< the graph's when empty
};

/// The scalars that callbacks report to the monitors.
struct ReportedScalars {
  /// Those that are known before training.
  std::vector<std::string> names = {};
  /// Whether there are no others.
  bool are_all = false;
};

/// Of a callback that reports none.
inline ReportedScalars no_scalars() { return {.are_all = true}; }

/// The session of a training, from initialize() on, with the graph it runs. Predictors share it,
/// and may outlive the trainer.
struct SharedSession {
  std::shared_ptr<Graph> graph = {};
  detail::Pimpl<Session> session = {};

  /// Throws an Error when there is none yet.
  Session& get() const;
};

/// The state of a training run. Trainers derive from it (train/trainer.h) and fill it in; callbacks
/// hold a reference. It lives in this folder so that callbacks do not depend on trainers.
class TrainerBase {
 public:
  virtual ~TrainerBase() = default;

  const LoopState& loop() const { return loop_; }
  int64_t epoch_num() const { return loop_.epoch_num; }
  int64_t local_step() const { return loop_.local_step; }
  int64_t global_step() const { return loop_.global_step; }
  int64_t steps_per_epoch() const { return loop_.steps_per_epoch; }
  int64_t starting_epoch() const { return loop_.starting_epoch; }
  int64_t max_epoch() const { return loop_.max_epoch; }

  /// True in the process that writes logs and checkpoints.
  bool is_chief() const { return is_chief_; }
  /// The processes that train together; null when this one trains alone.
  ProcessGroup* processes() const { return processes_.get(); }

  Graph& graph() { return *graph_; }
  VariableStore& variables() { return graph_->variables(); }
  /// From setup_callbacks() on.
  Monitors& monitors();
  /// From initialize() on: evaluates only what is asked.
  Session& sess();
  /// From initialize() on: evaluates together with every callback's before_run() and after_run().
  HookedSession& hooked_sess();

  /// What the callbacks have to save in a checkpoint, by a key of each.
  virtual std::map<std::string, std::string> callback_states() const { return {}; }

  /// What monitors report of the trainer besides what they know of every run, such as the options
  /// of its optimizer.
  virtual HyperParams hyper_params() const { return {}; }

  /// What tells this program from a changed one, for its checkpoints: from before_train() on, where
  /// a callback wanted it in setup_graph().
  const Fingerprint& fingerprint() const { return fingerprint_; }
  void want_fingerprint() { wants_fingerprint_ = true; }

  /// The scalars that are minimised, by the names its ops give them: those that StopAtNaN and
  /// others look at unless told otherwise.
  virtual std::vector<std::string> cost_names() const { return {"cost"}; }

  /// What its callbacks report. Not known in full where a step is the trainer's own code, or a
  /// callback does not say.
  virtual ReportedScalars reported_scalars() const { return {}; }

  /// Says that the callback `owner` writes this file. Throws an Error if another one does already.
  void claim_file(const std::filesystem::path& file, const std::string& owner);

  /// Called by MaintainStepCounter after every hooked run.
  void set_global_step(int64_t step) { loop_.global_step = step; }

  /// What one step runs by default; empty for trainers that override run_step().
  const Op& train_op() const { return train_op_; }

  /// Builds the model once more, in prediction mode, on the variables of the first tower. Only
  /// before the graph is final, and only for trainers that have a tower function: Error otherwise.
  virtual TowerHandle build_prediction_tower(PredictionTowerOptions options);

  /// A function from some inputs of the model to some of its tensors, in prediction mode, on the
  /// variables as they are at each call. Made in setup_graph() of a callback or earlier, called in
  /// before_train() or later; it may outlive the trainer. Predictors on one device share a tower,
  /// so that another one costs little. `device` is the graph's when empty; on another one, every
  /// call copies the variables there. Error for trainers that have no tower function.
  virtual OnlinePredictor get_predictor(std::vector<std::string> input_names,
                                        std::vector<std::string> output_names,
                                        std::optional<c10::Device> device = {}) = 0;

 protected:
  TrainerBase();
  /// Makes sess().
  void open_session(SessionOptions options = {});

  LoopState loop_;
  bool is_chief_ = true;
  std::shared_ptr<ProcessGroup> processes_;
  std::shared_ptr<Graph> graph_;  // shared: it may be built before the trainer and outlive it
  detail::Pimpl<Monitors> monitors_;
  std::shared_ptr<SharedSession> session_;
  detail::Pimpl<HookedSession> hooked_sess_;
  Op train_op_;
  Fingerprint fingerprint_;
  bool wants_fingerprint_ = false;

 private:
  std::map<std::string, std::string> owners_of_files_;
};

}  // namespace tensorpack
