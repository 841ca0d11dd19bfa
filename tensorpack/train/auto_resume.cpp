// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/auto_resume.h"

#include "tensorpack/callbacks/generator_state.h"
#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/checkpoint_directory.h"
#include "tensorpack/monitors/json_writer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

// Statistics that belong to another epoch are a sign that something was lost or mixed up.
void compare_with_statistics(const fs::path& dir, const fs::path& checkpoint, int64_t epochs_done) {
  const auto epoch = JSONWriter::load_existing_epoch_number(dir);
  if (!epoch || *epoch == epochs_done) return;
  log::warning(
      "[AutoResumeTrainConfig] the statistics in '{}' end with epoch {}, the checkpoint '{}' with "
      "epoch {}: training goes on from the checkpoint.",
      dir.string(), *epoch, checkpoint.filename().string(), epochs_done);
}

}  // namespace

AutoResumeTrainConfig::AutoResumeTrainConfig(TrainConfig config, AutoResumeOptions options)
    : TrainConfig(std::move(config)) {
  const auto dir = get_logger_dir();
  TP_CHECK(dir.has_value(), "AutoResumeTrainConfig",
           "there is no log directory to resume from. Call set_logger_dir(dir, "
           "LogDirAction::kKeep) first.");
  const auto latest = CheckpointDirectory(*dir).latest();
  if (!latest) {
    log::info("There is no checkpoint in '{}': training starts from the beginning.", dir->string());
    return;
  }
  const bool is_given = session_init || starting_epoch != 1;
  if (is_given && !options.always_resume) {
    log::info("The checkpoint '{}' is not used: the config says where to start.", latest->string());
    return;
  }
  const Checkpoint checkpoint = load_checkpoint(*latest);
  const auto steps_done = checkpoint.extra.find(kStepsDoneInEpoch);
  const bool is_within_epoch = steps_done != checkpoint.extra.end();
  starting_epoch = checkpoint.epoch_num + (is_within_epoch ? 0 : 1);
  starting_step = is_within_epoch ? std::stoll(steps_done->second) : 0;
  session_init = ResumeInit(*latest);
  log::info("Resuming from '{}' with epoch {}, step {} of it{}.", latest->string(), starting_epoch,
            starting_step, is_given ? ", whatever the config says" : "");
  compare_with_statistics(*dir, *latest, starting_epoch - 1);
}

void ResumeInit::init(Graph& graph) {
  SaverRestore(path_).init(graph);
  restore_generators(graph, load_checkpoint(path_).extra);
}

}  // namespace tensorpack
