// SPDX-License-Identifier: Apache-2.0
// Going on where an earlier run ended.
//
//   set_logger_dir("train_log/mine", LogDirAction::kKeep);
//   launch_train_with_config(AutoResumeTrainConfig({.model = ..., .max_epoch = 100}),
//   SimpleTrainer());
#pragma once

#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/session/session_init.h"
#include "tensorpack/train/train_config.h"

namespace tensorpack {

struct AutoResumeOptions {
  /// Whether a checkpoint in the log directory wins over a session_init or starting_epoch in the
  /// config. Otherwise it is used only when the config has neither.
  bool always_resume = true;
  /// Whether a checkpoint that does not have all that is needed to go on exactly, or more, is an
  /// Error. Otherwise what is missing starts anew, with a warning.
  bool strict = true;
};

/// A TrainConfig that starts from the newest whole checkpoint in the log directory, if there is
/// one: with its variables, its step, its epoch and its random numbers. Everything else is as in
/// the config.
///
/// A training that is resumed gives the numbers it would have given without the break, if its
/// dataflows have fixed seeds. A checkpoint made within an epoch is continued within it. The data
/// goes on with the first batch that was not used, and callbacks get what they saved
/// (Callback::save_state()). Throws Error when there is no log directory.
struct AutoResumeTrainConfig : TrainConfig {
  explicit AutoResumeTrainConfig(TrainConfig config, AutoResumeOptions options = {});
};

/// Everything a checkpoint has: the variables, the random number generators, and the states of the
/// data and the callbacks.
class ResumeInit final : public SessionInit {
 public:
  explicit ResumeInit(Checkpoint checkpoint, bool strict = true)
      : checkpoint_(std::move(checkpoint)), strict_(strict) {}
  void init(Graph& graph) override;
  std::optional<StateTexts> callback_states() const override { return checkpoint_.extra; }

 private:
  Checkpoint checkpoint_;
  bool strict_;
};

}  // namespace tensorpack
