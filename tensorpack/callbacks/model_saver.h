// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

class CheckpointWriter;

/// The key in Checkpoint::extra of a checkpoint made within an epoch: how many of its steps were
/// made. Absent when the epoch was complete.
inline constexpr const char* kStepsDoneInEpoch = "steps_done_in_epoch";

/// The variables that checkpoints of a graph have.
NamedTensors saved_variables(const Graph& graph);

/// The saved variables in which NaN and infinities are no sign of a failed training: those whose
/// names match one of the regular expressions, and those, but for trainable ones, that have some
/// now: to be asked when training begins. They are masks, or the smallest value so far.
std::set<std::string> non_finite_by_intent(const Graph& graph,
                                           const std::vector<std::string>& patterns);

/// All that a training has to save, as it is now: variables, step, epoch, and the states of random
/// number generators and callbacks.
Checkpoint take_checkpoint(TrainerBase& trainer);

struct ModelSaverOptions {
  /// How many of the last checkpoints are kept; 0 keeps all.
  int64_t max_to_keep = 10;
  /// Besides, about one checkpoint in so many hours is never deleted; 0 does not keep any.
  double keep_checkpoint_every_n_hours = 0.5;
  /// By default the log directory.
  std::filesystem::path checkpoint_dir = {};
  /// How often a checkpoint that cannot be written is tried again, and how long to wait before.
  int64_t retries = 2;
  double seconds_between_retries = 1;
  /// Whether training goes on while a checkpoint is written. For that all variables are copied, to
  /// as much memory of the host as a checkpoint takes on the disk.
  bool background = true;
  /// Regular expressions for names of variables that may have NaN and infinities. In others they
  /// end the training. Not needed for those that begin with some and are not trained.
  std::vector<std::string> may_be_non_finite = {};
};

/// Saves all variables, except local ones, to `model-<global_step>.safetensors` when triggered,
/// when SIGUSR1 asks for it, and when SIGTERM ends the training. The checkpoint holds all that is
/// needed to go on exactly: the epoch, the step, and the states of the random number generators,
/// the data and the callbacks too.
///
/// It is taken when all callbacks and monitors are done with the step or epoch, so that none of
/// their work is missing after a restart; should one of them fail, it is still taken. Then it is
/// written in the background; the end of training waits for that.
///
/// Throws Error before the first step when there is no directory or it cannot be written. Later a
/// checkpoint that cannot be written is an error in the log, and training goes on; there is never
/// half a checkpoint. When that happens to the last one, training ends with an Error. When the disk
/// is full, older checkpoints are given up for the newest.
///
/// A checkpoint with a NaN or an infinity is not written, and the one before stays the newest:
/// every training that went on from it would fail. Training then ends with an Error that names the
/// variables, as soon as the writer has found them: it would go on without being saved.
///
/// Of several processes the chief writes. It has what all of them have: when one of them is sent
/// SIGUSR1 or SIGTERM, all save or end after the same step, and hand it in. (Not so where the
/// chief's data does not come: there, random numbers of the others are missing.)
class ModelSaver final : public Callback {
 public:
  explicit ModelSaver(ModelSaverOptions options = {});
  ModelSaver(ModelSaver&&) noexcept;
  ModelSaver& operator=(ModelSaver&&) noexcept;
  ~ModelSaver() override;

  ReportedScalars reports() const override { return no_scalars(); }
  void setup_graph() override;
  void before_train() override;
  void before_epoch() override;
  void after_epoch() override { in_epoch_ = false; }
  void trigger() override { is_due_ = true; }
  void after_triggers() override;
  void after_train() override;
  void on_terminate() override;
  bool on_request_to_save() override {
    gather_and_save();
    return true;
  }

 private:
  void gather_and_save();
  void save();
  Checkpoint take_checkpoint() const;  // of all processes, and within an epoch

  ModelSaverOptions options_;
  std::filesystem::path dir_;
  bool in_epoch_ = false;
  bool has_begun_ = false;  // whether an epoch has
  bool is_due_ = false;
  std::string failure_;    // why the last checkpoint was not taken
  StateTexts generators_;  // of all processes, when they were gathered
  detail::Pimpl<CheckpointWriter> writer_;
};

}  // namespace tensorpack
