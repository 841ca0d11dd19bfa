// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/train/auto_resume.h"

#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/generator_state.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/seed.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// How many steps of the checkpoint's epoch were made; nothing when it was complete.
std::optional<int64_t> steps_done_in_epoch(const FoundCheckpoint& newest) {
  const auto found = newest.checkpoint.extra.find(kStepsDoneInEpoch);
  if (found == newest.checkpoint.extra.end()) return std::nullopt;
  const auto steps = parse_integer(found->second);
  TP_CHECK(steps && *steps >= 0, "AutoResumeTrainConfig",
           "'{}' in the checkpoint '{}' is '{}' instead of a number of steps. The file is damaged; "
           "delete it, then the one before it is used.",
           kStepsDoneInEpoch, newest.path.string(), found->second);
  return steps;
}

// The random numbers are part of where a training stands.
void check_generators(const Graph& graph, const Checkpoint& checkpoint, bool strict) {
  std::vector<std::string> missing;
  for (const auto& [name, state] : save_generators(graph)) {
    // Who adds a prediction to a resumed training changes nothing of it, and who adds a tower knows
    // that it draws numbers of its own.
    const bool is_added =
        name.find("/prediction/") != std::string::npos || name.starts_with("generator/tower");
    if (!is_added && !checkpoint.extra.contains(name)) missing.push_back(name);
  }
  if (missing.empty()) return;
  TP_CHECK(!strict, "restore",
           "training cannot go on exactly: the checkpoint has no state of {}. Resume on the device "
           "it was made on, or go on with other random numbers with "
           "AutoResumeTrainConfig(config, {{.strict = false}}).",
           join(missing));
  logging::warning("The checkpoint has no state of {}: random numbers start anew.", join(missing));
}

// Before format 3 a checkpoint had no seed of the data.
void warn_of_unknown_seed(const std::string& path, const Checkpoint& checkpoint) {
  const bool is_known = checkpoint.format >= 3 || user_seed().has_value();
  if (is_known || !checkpoint.extra.contains(kStepsDoneInEpoch)) return;
  logging::warning(
      "'{}', of format {}, does not say which seed its data followed from, and none is set: if the "
      "data is shuffled, what is left of the epoch repeats some samples and leaves others out. "
      "Call "
      "set_global_seed() with the seed of that run, which its log has.",
      path, checkpoint.format);
}

}  // namespace

AutoResumeTrainConfig::AutoResumeTrainConfig(TrainConfig config, AutoResumeOptions options)
    : TrainConfig(std::move(config)) {
  const auto dir = get_logger_dir();
  TP_CHECK(dir.has_value(), "AutoResumeTrainConfig",
           "there is no log directory to resume from. Call set_logger_dir(dir, "
           "LogDirAction::kKeep) first.");
  const bool is_given = session_init || starting_epoch != 1;
  if (is_given && !options.always_resume) {
    logging::info("Checkpoints in '{}' are not used: the config says where to start.",
                  dir->string());
    return;
  }
  auto newest = load_newest_checkpoint(*dir);
  if (!newest) {
    logging::info(
        "There is no checkpoint in '{}' (a ModelSaver writes them): training starts from the "
        "beginning.",
        dir->string());
    return;
  }
  const auto steps_done = steps_done_in_epoch(*newest);
  starting_epoch = newest->checkpoint.epoch_num + (steps_done ? 0 : 1);
  starting_step = steps_done.value_or(0);
  logging::info("Resuming from '{}' with epoch {}, step {} of it{}.", newest->path.string(),
                starting_epoch, starting_step, is_given ? ", whatever the config says" : "");
  session_init = ResumeInit(std::move(*newest), options);
}

ResumeInit::ResumeInit(FoundCheckpoint newest, AutoResumeOptions options)
    : path_(newest.path.string()), checkpoint_(std::move(newest.checkpoint)), options_(options) {}

std::optional<StateTexts> ResumeInit::callback_states() const { return checkpoint_.extra; }

void ResumeInit::init(Graph& graph) {
  restore_checkpoint(graph, checkpoint_, {.strict = options_.strict, .training_state = true});
  check_generators(graph, checkpoint_, options_.strict);
  warn_of_unknown_seed(path_, checkpoint_);
  restore_generators(graph, checkpoint_.extra);
  checkpoint_.variables.clear();  // not needed any more, and as large as the model
}

std::optional<SavedProgram> ResumeInit::saved_program() const {
  return SavedProgram{.checkpoint = path_,
                      .fingerprint = checkpoint_.fingerprint,
                      .must_be_same = options_.same_program};
}

}  // namespace tensorpack
