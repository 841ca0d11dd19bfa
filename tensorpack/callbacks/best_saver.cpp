// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/best_saver.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tensorpack/callbacks/model_saver.h"
#include "tensorpack/checkpoint/checkpoint.h"
#include "tensorpack/checkpoint/checkpoint_writer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

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

BestSaver::BestSaver(BestSaver&&) noexcept = default;
BestSaver& BestSaver::operator=(BestSaver&&) noexcept = default;
BestSaver::~BestSaver() = default;

void BestSaver::setup_graph() {
  dir_ = options_.checkpoint_dir.empty() ? get_logger_dir().value_or(fs::path())
                                         : options_.checkpoint_dir;
  TP_CHECK(!dir_.empty(), name(),
           "there is no directory to save to. Call set_logger_dir() before training, or set "
           ".checkpoint_dir.");
  trainer().claim_file(dir_ / file_for(0, 0), name());
  trainer().want_fingerprint();
  best_.reset();
}

void BestSaver::before_train() {
  last_step_ = -1;
  is_due_ = is_lost_ = has_begun_ = false;
  stat_.check_before(trainer());
  fs::create_directories(dir_);
  remove_stale_temporaries(dir_);
  if (trainer().loop().is_resumed()) find_best_of_earlier_run();
  writer_ = std::make_unique<CheckpointWriter>(
      [this](const Checkpoint& checkpoint) { write(checkpoint); },
      CheckpointWriterOptions{.owner = name(),
                              .background = options_.background,
                              .retries = options_.retries,
                              .seconds_between_retries = options_.seconds_between_retries});
  writer_->reserve(saved_variables(graph()));
}

// All callbacks have set their variables by then.
void BestSaver::before_epoch() {
  if (std::exchange(has_begun_, true)) return;
  writer_->allow_non_finite(non_finite_by_intent(graph(), options_.may_be_non_finite));
}

// What is in a file of this saver; nothing if there is none that is whole.
std::optional<BestSaver::Best> BestSaver::read_best(const std::string& file) const {
  const fs::path path = dir_ / file;
  if (!fs::exists(path)) return std::nullopt;
  try {
    const Checkpoint saved = load_checkpoint(path);
    const auto found = saved.extra.find(kBest);
    if (found == saved.extra.end()) return std::nullopt;
    return Best{.value = parse_exact_text(found->second),
                .step = saved.global_step,
                .epoch = saved.epoch_num,
                .file = file};
  } catch (const std::exception& error) {
    logging::warning("[{}] '{}' cannot be read: {}", name(), path.string(), error.what());
    return std::nullopt;
  }
}

// Believes what the checkpoint says only if the file says the same. A run that was killed may have
// left no file, or one of a step that is trained again now.
void BestSaver::find_best_of_earlier_run() {
  std::optional<Best> there = read_best(best_ ? best_->file : file_for(0, 0));
  const bool is_made_again = there && there->step > global_step();
  if (is_made_again) there.reset();
  const std::optional<Best> said = std::exchange(best_, there);
  if (!said || said == there) return;
  if (said->step == global_step()) {
    is_lost_ = true;
    best_ = said;
    best_before_ = there;
    return;
  }
  if (there && !is_better(said->value, there)) return;  // saved after the checkpoint
  if (said->step < 0 && options_.filename.find("{step}") != std::string::npos) {
    best_ = said;  // format 2 does not say which file
    return;
  }
  const std::string text = fmt::format("[{}] the best '{}' so far, {:.5g}, is forgotten: '{}' {}.",
                                       name(), stat_.name(), said->value, said->file,
                                       is_made_again ? "is of a step that is trained again"
                                       : there       ? fmt::format("is of step {}", there->step)
                                                     : "is not there");
  is_made_again ? logging::info("{}", text) : logging::warning("{}", text);
}

void BestSaver::after_triggers() {
  if (is_lost_) {
    is_lost_ = false;
    logging::info("[{}] '{}' was not written when the run before ended.", name(), best_->file);
    save(*best_);
  }
  const bool is_due = std::exchange(is_due_, false);
  if (is_due) forget_unwritten();
  writer_->check_not_refused();
  if (!is_due || !stat_.is_there(trainer(), ": nothing is saved")) return;
  const auto [step, value] = trainer().monitors().get_history(stat_.name()).back();
  if (step == last_step_ || !is_better(value, best_)) return;
  last_step_ = step;
  if (step != global_step()) {
    logging::warning(
        "[{}] '{}' is {:.5g}, the best, but of step {}, and the variables are those of {}. "
        "Trigger it as often as the scalar is reported. Nothing is saved.",
        name(), stat_.name(), value, step, global_step());
    return;
  }
  best_before_ = best_;
  save({.value = value, .step = step, .epoch = epoch_num(), .file = file_for(value, step)});
}

bool BestSaver::is_better(double value, const std::optional<Best>& than) const {
  if (std::isnan(value)) return false;
  if (!than) return true;
  return wanted_ == Wanted::kMin ? value < than->value : value > than->value;
}

std::optional<double> BestSaver::best() const {
  return best_ ? std::optional(best_->value) : std::nullopt;
}

void BestSaver::save(Best best) {
  best_ = std::move(best);  // is in the checkpoint
  try {
    Checkpoint checkpoint = take_checkpoint(trainer());
    checkpoint.epoch_num = best_->epoch;  // before the first epoch the trainer is not in it
    checkpoint.extra.emplace(kBest, exact_text(best_->value));
    writer_->wait();
    const auto lock = graph().lock_variables();  // which the writer copies now
    writer_->save(std::move(checkpoint));
  } catch (const std::exception& error) {
    best_ = best_before_;
    logging::error("[{}] {} Training goes on.", name(), error.what());
  }
}

// On the thread of the writer.
void BestSaver::write(const Checkpoint& checkpoint) const {
  const double value = parse_exact_text(checkpoint.extra.at(kBest));
  const fs::path file = dir_ / file_for(value, checkpoint.global_step);
  save_checkpoint(file, checkpoint);
  logging::info("Model with {} '{}' {:.5g} saved to '{}'.",
                wanted_ == Wanted::kMin ? "minimum" : "maximum", stat_.name(), value,
                file.string());
}

void BestSaver::after_train() {
  forget_unwritten();
  if (writer_) writer_->check_not_refused();  // no epoch comes that would ask
  stat_.check_after(trainer());
}

// What could not be written is not the best of anything.
void BestSaver::forget_unwritten() {
  if (writer_ && !writer_->wait().empty()) best_ = best_before_;
}

std::string BestSaver::file_for(double value, int64_t step) const {
  std::string filename = options_.filename;
  if (filename.empty()) filename = (wanted_ == Wanted::kMin ? "min-" : "max-") + stat_.name();
  replace_all(filename, "{value}", fmt::format("{:.5g}", value));
  replace_all(filename, "{step}", std::to_string(step));
  std::replace(filename.begin(), filename.end(), '/', '-');  // names of scalars may have scopes
  return filename + ".safetensors";
}

// A checkpoint of a later step makes the best one's step the past: then its file must be there.
std::optional<BestSaver::Best> BestSaver::saved_or_same_step() const {
  if (!best_ || !writer_ || best_->step == global_step()) return best_;
  return writer_->wait().empty() ? best_ : best_before_;
}

// With what after_triggers() is about to save, for a ModelSaver that comes first in the list.
std::optional<BestSaver::Best> BestSaver::best_of_this_step() const {
  std::optional<Best> best = saved_or_same_step();
  if (!is_due_ || !trainer().monitors().contains(stat_.name())) return best;
  const auto [step, value] = trainer().monitors().get_history(stat_.name()).back();
  if (step != global_step() || step == last_step_ || !is_better(value, best)) return best;
  return Best{.value = value, .step = step, .epoch = epoch_num(), .file = file_for(value, step)};
}

std::string BestSaver::save_state() const {
  const std::optional<Best> best = best_of_this_step();
  if (!best) return "";
  return nlohmann::json{{"value", exact_text(best->value)},
                        {"step", best->step},
                        {"epoch", best->epoch},
                        {"file", best->file}}
      .dump();
}

// In format 2, the value alone.
void BestSaver::load_state(const std::string& state) {
  if (!state.starts_with('{')) {
    const double value = parse_exact_text(state);
    best_ = Best{.value = value, .file = file_for(value, 0)};
    return;
  }
  const auto values = nlohmann::json::parse(state);
  best_ = Best{.value = parse_exact_text(values.at("value").get<std::string>()),
               .step = values.at("step").get<int64_t>(),
               .epoch = values.at("epoch").get<int64_t>(),
               .file = fs::path(values.at("file").get<std::string>()).filename()};
}

}  // namespace tensorpack
