// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/best_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

namespace fs = std::filesystem;

namespace {

constexpr const char* kBest = "best_value";  // in Checkpoint::extra

void replace_all(std::string& text, std::string_view what, const std::string& by) {
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size()) {
    text.replace(at, what.size(), by);
  }
}

}  // namespace

BestSaver::BestSaver(Wanted wanted, std::string stat, BestSaverOptions options)
    : wanted_(wanted),
      stat_(wanted == Wanted::kMin ? "MinSaver" : "MaxSaver", std::move(stat)),
      options_(std::move(options)) {
  TP_CHECK(!stat_.name().empty(), wanted == Wanted::kMin ? "MinSaver" : "MaxSaver",
           "the name of the scalar is empty. Pass one such as validation_error.");
  std::string filename = options_.filename;
  for (const char* known : {"{value}", "{step}"}) replace_all(filename, known, "");
  TP_CHECK(filename.find_first_of("{}") == std::string::npos,
           wanted == Wanted::kMin ? "MinSaver" : "MaxSaver",
           "the file name '{}' has braces around something else than value or step. Write "
           "{{value}} or {{step}}, or no braces.",
           options_.filename);
}

void BestSaver::setup_graph() {
  dir_ = options_.checkpoint_dir.empty() ? get_logger_dir().value_or(fs::path())
                                         : options_.checkpoint_dir;
  TP_CHECK(!dir_.empty(), name(),
           "there is no directory to save to. Call set_logger_dir() before training, or set "
           ".checkpoint_dir.");
  trainer().claim_file(file_for(0, 0), name());
  best_.reset();
}

void BestSaver::before_train() {
  last_step_ = -1;
  is_due_ = false;
  stat_.check_before(trainer());
  fs::create_directories(dir_);
  remove_stale_temporaries(dir_);
  if (trainer().loop().is_resumed()) take_best_of_file();
  writer_ = std::make_unique<CheckpointWriter>(
      [this](const Checkpoint& checkpoint) { write(checkpoint); },
      CheckpointWriterOptions{.owner = name(),
                              .background = options_.background,
                              .retries = options_.retries,
                              .seconds_between_retries = options_.seconds_between_retries});
  writer_->reserve(saved_variables(graph()));
}

// A ModelSaver that comes first in the list saves what was the best before.
void BestSaver::take_best_of_file() {
  const fs::path file = file_for(0, 0);
  if (!fs::exists(file)) return;
  try {
    const Checkpoint saved = load_checkpoint(file);
    const auto found = saved.extra.find(kBest);
    if (found == saved.extra.end() || saved.global_step > global_step()) return;
    const double value = std::stod(found->second);
    if (is_better(value)) best_ = value;
  } catch (const std::exception& error) {
    log::warning("[{}] '{}' cannot be read: {}", name(), file.string(), error.what());
  }
}

void BestSaver::after_triggers() {
  if (!std::exchange(is_due_, false)) return;
  if (!stat_.is_there(trainer(), ": nothing is saved")) return;
  forget_unwritten();
  const auto [step, value] = trainer().monitors().get_history(stat_.name()).back();
  if (step == last_step_ || !is_better(value)) return;
  last_step_ = step;
  if (step != global_step()) {
    log::warning(
        "[{}] '{}' is {:.5g}, the best, but of step {}, and the variables are those of {}. "
        "Trigger it as often as the scalar is reported. Nothing is saved.",
        name(), stat_.name(), value, step, global_step());
    return;
  }
  save(value);
}

bool BestSaver::is_better(double value) const {
  if (std::isnan(value)) return false;
  if (!best_) return true;
  return wanted_ == Wanted::kMin ? value < *best_ : value > *best_;
}

void BestSaver::save(double value) {
  best_before_ = std::exchange(best_, value);  // is in the checkpoint
  try {
    Checkpoint checkpoint = take_checkpoint(trainer());
    checkpoint.extra.emplace(kBest, fmt::format("{:a}", value));
    writer_->wait();
    const auto lock = graph().lock_variables();  // which the writer copies now
    writer_->save(std::move(checkpoint));
  } catch (const std::exception& error) {
    best_ = best_before_;
    log::error("[{}] {} Training goes on.", name(), error.what());
  }
}

// On the thread of the writer.
void BestSaver::write(const Checkpoint& checkpoint) const {
  const double value = std::stod(checkpoint.extra.at(kBest));
  const fs::path file = file_for(value, checkpoint.global_step);
  save_checkpoint(file, checkpoint);
  log::info("Model with {} '{}' {:.5g} saved to '{}'.",
            wanted_ == Wanted::kMin ? "minimum" : "maximum", stat_.name(), value, file.string());
}

void BestSaver::after_train() {
  forget_unwritten();
  stat_.check_after(trainer());
}

// What could not be written is not the best of anything.
void BestSaver::forget_unwritten() {
  if (writer_ && !writer_->wait().empty()) best_ = best_before_;
}

fs::path BestSaver::file_for(double value, int64_t step) const {
  std::string filename = options_.filename;
  if (filename.empty()) filename = (wanted_ == Wanted::kMin ? "min-" : "max-") + stat_.name();
  replace_all(filename, "{value}", fmt::format("{:.5g}", value));
  replace_all(filename, "{step}", std::to_string(step));
  std::replace(filename.begin(), filename.end(), '/', '-');  // names of scalars may have scopes
  return dir_ / (filename + ".safetensors");
}

std::string BestSaver::save_state() const { return best_ ? fmt::format("{:a}", *best_) : ""; }

void BestSaver::load_state(const std::string& state) { best_ = std::stod(state); }

}  // namespace tensorpack
