// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <charconv>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::system_clock;

constexpr std::string_view kPrefix = "model-";

std::string name_of(int64_t step) {
  return fmt::format("{}{}{}", kPrefix, step, kCheckpointExtension);
}

// The step in `model-<step>.safetensors`; nothing for any other name.
std::optional<int64_t> step_of(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  int64_t step = 0;
  std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), step);
  if (name != name_of(step)) return std::nullopt;
  return step;
}

int64_t to_json(system_clock::time_point time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

// Times that a damaged index names could overflow; none is later than this.
system_clock::time_point from_json(const nlohmann::json& count) {
  constexpr double kLast = 4e12;  // in the year 2096
  const double milliseconds_since = std::clamp(count.get<double>(), 0.0, kLast);
  return system_clock::time_point(milliseconds(static_cast<int64_t>(milliseconds_since)));
}

system_clock::duration hours(double count) {
  constexpr double kCentury = 876'600;
  return std::chrono::duration_cast<system_clock::duration>(
      std::chrono::duration<double, std::ratio<3600>>(std::min(count, kCentury)));
}

uint64_t free_space_in(const fs::path& dir) {
  std::error_code unknown;
  return fs::space(dir, unknown).available;  // the largest number if it is not known
}

system_clock::time_point modified_at(const fs::path& path) {
  return std::chrono::time_point_cast<system_clock::duration>(
      std::chrono::file_clock::to_sys(fs::last_write_time(path)));
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(fs::path dir, CheckpointDirectoryOptions options)
    : dir_(std::move(dir)), options_(std::move(options)) {
  if (!options_.free_space) options_.free_space = free_space_in;
  TP_CHECK(options_.max_to_keep >= 0 && options_.keep_checkpoint_every_n_hours >= 0,
           "CheckpointDirectory",
           "max_to_keep = {} and keep_checkpoint_every_n_hours = {} must not "
           "be negative.",
           options_.max_to_keep, options_.keep_checkpoint_every_n_hours);
  keep_time_ = options_.now() + hours(options_.keep_checkpoint_every_n_hours);
  read_list();
}

void CheckpointDirectory::read_list() {
  entries_.clear();
  latest_.reset();
  if (!fs::exists(dir_)) return;
  try {
    read_index();
  } catch (const std::exception& error) {
    logging::warning(
        "[CheckpointDirectory] '{}' is not an index of checkpoints: {}. They are found by "
        "their names.",
        (dir_ / kCheckpointIndex).string(), error.what());
    entries_.clear();
    latest_.reset();
  }
  find_unlisted();
  if (!latest_ && !entries_.empty()) latest_ = entries_.back().step;
}

std::optional<fs::path> CheckpointDirectory::latest() const {
  if (!latest_) return std::nullopt;
  return path_of(*latest_);
}

std::vector<fs::path> CheckpointDirectory::all() const {
  std::vector<int64_t> steps;
  for (const Entry& entry : entries_) steps.push_back(entry.step);
  std::sort(steps.begin(), steps.end());
  std::vector<fs::path> paths;
  for (const int64_t step : steps) paths.push_back(path_of(step));
  return paths;
}

std::vector<fs::path> CheckpointDirectory::newest_first() const {
  std::vector<fs::path> paths;
  if (latest_) paths.push_back(path_of(*latest_));
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->step != latest_) paths.push_back(path_of(entry->step));
  }
  return paths;
}

fs::path CheckpointDirectory::save(const Checkpoint& checkpoint) {
  const int64_t step = checkpoint.global_step;
  TP_CHECK(step >= 0, "CheckpointDirectory", "global_step is {}, it must not be negative.", step);
  static std::mutex saving;  // one at a time, and each knows what the others have saved
  const std::lock_guard lock(saving);
  fs::create_directories(dir_);
  read_list();
  write_file(checkpoint);

  std::erase_if(entries_, [step](const Entry& entry) { return entry.step == step; });
  entries_.push_back({.step = step, .saved_at = options_.now()});
  latest_ = step;
  const std::vector<Entry> dropped = drop_old();
  // The index first: it must never name a file that is gone.
  write_index();
  for (const Entry& entry : dropped) {
    std::error_code failure;
    fs::remove(path_of(entry.step), failure);
    if (failure) {
      logging::warning("[CheckpointDirectory] cannot delete the old checkpoint '{}': {}.",
                       path_of(entry.step).string(), failure.message());
    }
  }
  return path_of(step);
}

fs::path CheckpointDirectory::path_of(int64_t step) const { return dir_ / name_of(step); }

bool CheckpointDirectory::is_listed(int64_t step) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [step](const Entry& entry) { return entry.step == step; });
}

void CheckpointDirectory::write_file(const Checkpoint& checkpoint) {
  uint64_t bytes = 1 << 20;  // for names and states
  for (const auto& [name, tensor] : checkpoint.variables) {
    if (tensor.defined()) bytes += tensor.nbytes();
  }
  while (true) {
    try {
      return save_checkpoint(path_of(checkpoint.global_step), checkpoint);
    } catch (const Error&) {
      if (options_.free_space(dir_) >= bytes || !give_up_oldest()) throw;
    }
  }
}

// Deletes the oldest checkpoint that is neither the latest nor kept forever; false if there is
// none.
bool CheckpointDirectory::give_up_oldest() {
  const auto oldest = std::find_if(entries_.begin(), entries_.end(), [this](const Entry& entry) {
    return !entry.forever && entry.step != latest_;
  });
  if (oldest == entries_.end()) return false;
  const fs::path path = path_of(oldest->step);
  logging::warning(
      "[CheckpointDirectory] the disk is full: '{}' is given up for a newer checkpoint.",
      path.string());
  entries_.erase(oldest);
  std::error_code failure;
  fs::remove(path, failure);
  return !failure;
}

// The names are looked up in this directory, whatever they say.
void CheckpointDirectory::read_index() {
  const fs::path path = dir_ / kCheckpointIndex;
  if (!fs::exists(path)) return;
  const auto index = nlohmann::json::parse(read_file(path));
  const auto saved_at = index.value("saved_at", nlohmann::json::object());
  const auto forever = index.value("forever", std::vector<std::string>());
  for (const auto& name : index.at("all").get<std::vector<std::string>>()) {
    const auto step = step_of(name);
    if (!step || is_listed(*step) || !fs::exists(dir_ / name)) continue;  // removed by hand
    entries_.push_back({
        .step = *step,
        .saved_at =
            saved_at.contains(name) ? from_json(saved_at.at(name)) : modified_at(dir_ / name),
        .forever = std::find(forever.begin(), forever.end(), name) != forever.end(),
    });
  }
  const auto latest = step_of(index.at("latest").get<std::string>());
  if (latest && fs::exists(path_of(*latest))) latest_ = latest;
  if (index.contains("keep_time")) keep_time_ = from_json(index.at("keep_time"));
}

// Checkpoints written just before a crash, or whose index is gone: by step, because a copy may have
// changed their times, and before those that the index tells the order of.
void CheckpointDirectory::find_unlisted() {
  std::vector<Entry> unlisted;
  for (const auto& file : fs::directory_iterator(dir_)) {
    const auto step = step_of(file.path().filename());
    if (!step || is_listed(*step) || !file.is_regular_file()) continue;
    unlisted.push_back({.step = *step, .saved_at = modified_at(file.path())});
  }
  std::sort(unlisted.begin(), unlisted.end(),
            [](const Entry& a, const Entry& b) { return a.step < b.step; });
  entries_.insert(entries_.begin(), unlisted.begin(), unlisted.end());
}

void CheckpointDirectory::write_index() const {
  nlohmann::ordered_json index = {{"latest", name_of(*latest_)},
                                  {"all", nlohmann::json::array()},
                                  {"forever", nlohmann::json::array()},
                                  {"saved_at", nlohmann::ordered_json::object()},
                                  {"keep_time", to_json(keep_time_)}};
  for (const Entry& entry : entries_) {
    const std::string name = name_of(entry.step);
    index["all"].push_back(name);
    if (entry.forever) index["forever"].push_back(name);
    index["saved_at"][name] = to_json(entry.saved_at);
  }
  write_file_atomically(dir_ / kCheckpointIndex, index.dump(2) + "\n");
}

// Takes the entries that may go out of the list and returns them.
std::vector<CheckpointDirectory::Entry> CheckpointDirectory::drop_old() {
  if (options_.max_to_keep == 0) return {};
  auto excess = std::count_if(entries_.begin(), entries_.end(),
                              [](const Entry& entry) { return !entry.forever; }) -
                options_.max_to_keep;
  std::vector<Entry> kept;
  std::vector<Entry> dropped;
  for (Entry entry : entries_) {
    const bool must_go = !entry.forever && excess-- > 0;
    if (must_go) entry.forever = keep_forever(entry.saved_at);
    (must_go && !entry.forever ? dropped : kept).push_back(entry);
  }
  entries_ = std::move(kept);
  return dropped;
}

bool CheckpointDirectory::keep_forever(Time saved_at) {
  const auto period = hours(options_.keep_checkpoint_every_n_hours);
  if (period.count() <= 0 || saved_at <= keep_time_) return false;
  // By whole periods beyond it: after a long pause, not every checkpoint that follows stays.
  keep_time_ += (saved_at - keep_time_ + period - Time::duration(1)) / period * period;
  return true;
}

std::optional<FoundCheckpoint> load_newest_checkpoint(const fs::path& dir) {
  const std::vector<fs::path> paths = CheckpointDirectory(dir).newest_first();
  for (const fs::path& path : paths) {
    try {
      return FoundCheckpoint{.path = path, .checkpoint = load_checkpoint(path)};
    } catch (const Error& error) {
      logging::error("{} The one before it is tried.", error.what());
    }
  }
  TP_CHECK(paths.empty(), "load_checkpoint",
           "'{}' has {}, and none that is whole. Bring one from elsewhere, or delete what is there "
           "to start from the beginning.",
           dir.string(), counted(std::ssize(paths), "checkpoint"));
  return std::nullopt;
}

}  // namespace tensorpack
