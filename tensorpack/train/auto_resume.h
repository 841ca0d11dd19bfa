// SPDX-License-Identifier: Apache-2.0
// Going on where an earlier run ended.
//
//   set_logger_dir("train_log/mine", LogDirAction::kKeep);
//   launch_train_with_config(AutoResumeTrainConfig({.model = ..., .max_epoch = 100}),
//   SimpleTrainer());
#pragma once

#include "tensorpack/checkpoint/checkpoint_directory.h"
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
  /// Whether a program that is not the one that saved the checkpoint is an Error. Otherwise what
  /// differs is a warning, ten lines at most, and training goes on. Compared are the options of the
  /// optimizer, the seed, the steps of an epoch, the stages of the data, the schedules, and the
  /// variables and operators of a step; not the number of ranks, towers and threads. Operators are
  /// compared on the same kind of device and with the same version of libtorch.
  bool same_program = false;
};

/// A TrainConfig that starts from the newest whole checkpoint in the log directory, if there is
/// one: with its variables, its step, its epoch and its random numbers. Everything else is as in
/// the config.
///
/// A training that is resumed gives the numbers it would have given without the break, if its
/// dataflows are made as before: seeds follow from the checkpoint's. A checkpoint made within an
/// epoch is continued within it. The data goes on with the first batch that was not used, and
/// callbacks get what they saved (Callback::save_state()). Throws Error when there is no log
/// directory.
struct AutoResumeTrainConfig : TrainConfig {
  explicit AutoResumeTrainConfig(TrainConfig config, AutoResumeOptions options = {});
};

/// Everything a checkpoint has: the variables, the random number generators, and the states of the
/// data and the callbacks.
class ResumeInit final : public SessionInit {
 public:
  explicit ResumeInit(FoundCheckpoint newest, AutoResumeOptions options = {});
  void init(Graph& graph) override;
  std::optional<StateTexts> callback_states() const override;
  std::optional<SavedProgram> saved_program() const override;

 private:
  std::string path_;
  Checkpoint checkpoint_;
  AutoResumeOptions options_;
};

}  // namespace tensorpack
