// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/model_saver.h"

#include <utility>

#include "tensorpack/checkpoint/checkpoint_writer.h"
#include "tensorpack/checkpoint/generator_state.h"
#include "tensorpack/checkpoint/non_finite.h"
#include "tensorpack/parallel/rank_state.h"
#include "tensorpack/parallel/variable_sync.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/regex.h"

namespace tensorpack {

namespace fs = std::filesystem;

NamedTensors saved_variables(const Graph& graph) {
  NamedTensors variables;
  for (const Variable& variable : graph.variables().all()) {
    if (variable.is_saved()) variables.emplace(variable.name, variable.tensor.detach());
  }
  return variables;
}

std::set<std::string> non_finite_by_intent(const Graph& graph,
                                           const std::vector<std::string>& patterns) {
  std::vector<std::regex> regexes;
  for (const std::string& pattern : patterns) {
    regexes.push_back(compile_regex("may_be_non_finite", pattern));
  }
  std::set<std::string> names;
  NamedTensors untrained;
  for (const Variable& variable : graph.variables().all()) {
    if (!variable.is_saved()) continue;
    if (matches_any(variable.name, regexes)) names.insert(variable.name);
    if (!variable.is_trainable()) untrained.emplace(variable.name, variable.tensor.detach());
  }
  const auto lock = graph.lock_variables();
  for (std::string& name : find_non_finite(untrained)) names.insert(std::move(name));
  return names;
}

ModelSaver::ModelSaver(ModelSaverOptions options) : options_(std::move(options)) {
  set_chief_only(false);  // the others hand in what they have
}

ModelSaver::ModelSaver(ModelSaver&&) noexcept = default;
ModelSaver& ModelSaver::operator=(ModelSaver&&) noexcept = default;
ModelSaver::~ModelSaver() = default;

void ModelSaver::setup_graph() {
  if (!trainer().is_chief()) return;
  trainer().want_fingerprint();
  graph().expect_checkpoints();
  dir_ = options_.checkpoint_dir.empty() ? get_logger_dir().value_or(fs::path())
                                         : options_.checkpoint_dir;
  TP_CHECK(!dir_.empty(), "ModelSaver",
           "there is no directory to save to. Call set_logger_dir() before training, or pass "
           "ModelSaver({{.checkpoint_dir = ...}}).");
  TP_CHECK(options_.max_to_keep >= 0, "ModelSaver",
           "max_to_keep must not be negative, got {}. Pass 0 to keep all.", options_.max_to_keep);
  TP_CHECK(options_.retries >= 0 && options_.seconds_between_retries >= 0, "ModelSaver",
           "retries {} and seconds_between_retries {} must not be negative.", options_.retries,
           options_.seconds_between_retries);
}

void ModelSaver::before_train() {
  is_due_ = false;
  has_begun_ = false;
  failure_.clear();
  if (!trainer().is_chief()) return;
  try {
    fs::create_directories(dir_);
    remove_stale_temporaries(dir_);
    const fs::path probe = dir_ / ".writable";
    write_file_atomically(probe, "");
    fs::remove(probe);
  } catch (const std::exception& error) {
    throw make_error("ModelSaver", "cannot write to the directory '{}': {}. Choose another one.",
                     dir_.string(), error.what());
  }
  writer_ = std::make_unique<CheckpointWriter>(
      CheckpointDirectory(
          dir_, {.max_to_keep = options_.max_to_keep,
                 .keep_checkpoint_every_n_hours = options_.keep_checkpoint_every_n_hours}),
      CheckpointWriterOptions{.background = options_.background,
                              .retries = options_.retries,
                              .seconds_between_retries = options_.seconds_between_retries});
  writer_->reserve(saved_variables(graph()));
}

// All callbacks have set their variables by then.
void ModelSaver::before_epoch() {
  in_epoch_ = true;
  if (std::exchange(has_begun_, true) || !writer_) return;
  writer_->allow_non_finite(non_finite_by_intent(graph(), options_.may_be_non_finite));
}

void ModelSaver::after_triggers() {
  const bool is_due = std::exchange(is_due_, false);
  if (writer_ && is_due) writer_->wait();
  if (writer_) writer_->check_not_refused();
  if (is_due) gather_and_save();
  if (writer_ && is_due && !options_.background) writer_->check_not_refused();
}

void ModelSaver::on_terminate() {
  const ProcessGroup* processes = trainer().processes();
  const bool all_are_here = processes == nullptr || processes->ends_here();
  all_are_here ? gather_and_save() : save();
}

void ModelSaver::gather_and_save() {
  is_due_ =
      false;  // when a process is missing here, the checkpoint before is the one to go on from
  ProcessGroup* const processes = trainer().processes();
  if (processes != nullptr) generators_ = gather_generators(graph(), *processes);
  average_accumulated_gradients(graph(), processes);
  save();
  generators_.clear();
}

Checkpoint take_checkpoint(TrainerBase& trainer) {
  Checkpoint checkpoint{
      .variables = saved_variables(trainer.graph()),
      .global_step = trainer.global_step(),
      .epoch_num = trainer.epoch_num(),
      .extra = save_generators(trainer.graph()),
      .fingerprint = trainer.fingerprint(),
  };
  checkpoint.extra.merge(trainer.callback_states());
  for (const Variable& variable : trainer.graph().variables().all()) {
    const bool is_training_only = variable.is_saved() && variable.role == VariableRole::kGlobal;
    if (is_training_only) checkpoint.training_only.insert(variable.name);
  }
  return checkpoint;
}

Checkpoint ModelSaver::take_checkpoint() const {
  Checkpoint checkpoint = tensorpack::take_checkpoint(trainer());
  for (const auto& [name, state] : generators_) checkpoint.extra[name] = state;
  if (in_epoch_) checkpoint.extra.emplace(kStepsDoneInEpoch, std::to_string(local_step() + 1));
  return checkpoint;
}

void ModelSaver::save() {
  is_due_ = false;
  failure_.clear();
  if (!trainer().is_chief()) return;
  try {
    for (MonitorBase& monitor : trainer().monitors().all()) monitor.flush();
    Checkpoint checkpoint = take_checkpoint();
    writer_->wait();
    const auto lock = graph().lock_variables();  // which the writer copies now
    writer_->save(std::move(checkpoint));
  } catch (const std::exception& error) {
    failure_ =
        fmt::format("the checkpoint of step {} was not taken: {}", global_step(), error.what());
    logging::error("[ModelSaver] {}", failure_);
  }
}

void ModelSaver::after_train() {
  // Other processes may not come here, and without their random numbers it would not be exact.
  if (is_due_ && trainer().processes() == nullptr) save();
  const std::string unwritten = writer_ ? writer_->wait() : "";
  const std::string& failure = failure_.empty() ? unwritten : failure_;
  TP_CHECK(failure.empty(), "ModelSaver",
           "{} It was to be the last one: what was trained since the one before is lost.", failure);
}

}  // namespace tensorpack
