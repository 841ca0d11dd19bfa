// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/model_saver.h"

#include "tensorpack/callbacks/generator_state.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

namespace fs = std::filesystem;

void ModelSaver::setup_graph() {
  dir_ = options_.checkpoint_dir.empty() ? get_logger_dir().value_or(fs::path())
                                         : options_.checkpoint_dir;
  TP_CHECK(!dir_.empty(), "ModelSaver",
           "there is no directory to save to. Call set_logger_dir() before training, or pass "
           "ModelSaver({{.checkpoint_dir = ...}}).");
  TP_CHECK(options_.max_to_keep >= 0, "ModelSaver",
           "max_to_keep must not be negative, got {}. Pass 0 to keep all.", options_.max_to_keep);
}

void ModelSaver::before_train() {
  try {
    fs::create_directories(dir_);
    const fs::path probe = dir_ / ".writable";
    write_file_atomically(probe, "");
    fs::remove(probe);
  } catch (const std::exception& error) {
    throw make_error("ModelSaver", "cannot write to the directory '{}': {}. Choose another one.",
                     dir_.string(), error.what());
  }
  checkpoints_.emplace(dir_,
                       CheckpointDirectoryOptions{
                           .max_to_keep = options_.max_to_keep,
                           .keep_checkpoint_every_n_hours = options_.keep_checkpoint_every_n_hours,
                       });
}

void ModelSaver::trigger() {
  Checkpoint checkpoint{
      .global_step = global_step(),
      .epoch_num = epoch_num(),
      .extra = save_generators(graph()),
  };
  if (in_epoch_) checkpoint.extra.emplace(kStepsDoneInEpoch, std::to_string(local_step() + 1));
  for (const Variable& variable : graph().variables().all()) {
    if (variable.is_saved()) checkpoint.variables.emplace(variable.name, variable.tensor.detach());
  }
  try {
    const fs::path path = checkpoints_->save(checkpoint);
    log::info("Model saved to '{}'.", path.string());
  } catch (const std::exception& error) {
    log::error("[ModelSaver] the checkpoint of step {} was not saved: {}", global_step(),
               error.what());
  }
}

}  // namespace tensorpack
