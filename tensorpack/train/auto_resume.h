// SPDX-License-Identifier: Apache-2.0
// Going on where an earlier run ended.
//
//   set_logger_dir("train_log/mine", LogDirAction::kKeep);
//   launch_train_with_config(AutoResumeTrainConfig({.model = ..., .max_epoch = 100}),
//   SimpleTrainer());
#pragma once

#include <filesystem>

#include "tensorpack/session/session_init.h"
#include "tensorpack/train/train_config.h"

namespace tensorpack {

struct AutoResumeOptions {
  /// Whether a checkpoint in the log directory wins over a session_init or starting_epoch in the
  /// config. Otherwise it is used only when the config has neither.
  bool always_resume = true;
};

/// A TrainConfig that starts from the latest checkpoint in the log directory, if there is one: with
/// its variables, its step, its epoch and its random numbers. Everything else is as in the config.
///
/// A training that is resumed gives the numbers it would have given without the break, if its
/// dataflows have fixed seeds. A checkpoint made within an epoch is continued within it. Throws
/// Error when there is no log directory.
struct AutoResumeTrainConfig : TrainConfig {
  explicit AutoResumeTrainConfig(TrainConfig config, AutoResumeOptions options = {});
};

/// SaverRestore, and the random number generators as well.
class ResumeInit final : public SessionInit {
 public:
  explicit ResumeInit(std::filesystem::path path) : path_(std::move(path)) {}
  void init(Graph& graph) override;

 private:
  std::filesystem::path path_;
};

}  // namespace tensorpack
