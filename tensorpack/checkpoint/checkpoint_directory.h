// SPDX-License-Identifier: Apache-2.0
// A directory of checkpoints: which one is the latest, and which ones may go.
//
//   model-100.safetensors  model-200.safetensors  checkpoint
//
// The last is an index in JSON: {"latest": "model-200.safetensors", "all": [...], ...}.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <vector>

#include "tensorpack/checkpoint/checkpoint.h"

namespace tensorpack {

inline constexpr const char* kCheckpointExtension = ".safetensors";
inline constexpr const char* kCheckpointIndex = "checkpoint";

struct CheckpointDirectoryOptions {
  /// How many of the last checkpoints are kept; 0 keeps all.
  int64_t max_to_keep = 10;
  /// Besides, about one checkpoint in so many hours is never deleted; 0 does not keep any.
  double keep_checkpoint_every_n_hours = 0.5;
  /// What time it is; for tests.
  std::function<std::chrono::system_clock::time_point()> now = std::chrono::system_clock::now;
  /// How many bytes are free in a directory; for tests.
  std::function<uint64_t(const std::filesystem::path&)> free_space = {};
};

/// The checkpoints `model-<global_step>.safetensors` in a directory, those of earlier runs
/// included.
///
/// Several objects of one process may save into a directory. They share its list: a checkpoint goes
/// when one of them says so.
class CheckpointDirectory {
 public:
  /// Opens a directory, which need not exist before the first save().
  explicit CheckpointDirectory(std::filesystem::path dir, CheckpointDirectoryOptions options = {});

  /// The checkpoint saved last, by the index; without one, that of the highest step.
  std::optional<std::filesystem::path> latest() const;

  /// All checkpoints that are there, by step.
  std::vector<std::filesystem::path> all() const;

  /// All checkpoints that are there: the latest, then the one saved before it, and so on.
  std::vector<std::filesystem::path> newest_first() const;

  /// Writes a checkpoint, makes it the latest, and then deletes those that may go. When the disk is
  /// full those of them that are kept only for now go before, the oldest first, but never the
  /// latest.
  ///
  /// Whatever fails, the checkpoint named latest is complete and on the disk. Saving a step again
  /// replaces its file.
  std::filesystem::path save(const Checkpoint& checkpoint);

 private:
  using Time = std::chrono::system_clock::time_point;

  struct Entry {
    int64_t step = 0;
    Time saved_at = {};
    bool forever = false;
  };

  std::filesystem::path path_of(int64_t step) const;
  void read_list();
  void read_index();
  void find_unlisted();
  bool is_listed(int64_t step) const;
  void write_file(const Checkpoint& checkpoint);
  bool give_up_oldest();
  void write_index() const;
  std::vector<Entry> drop_old();
  bool keep_forever(Time saved_at);

  std::filesystem::path dir_;
  CheckpointDirectoryOptions options_;
  // In the order they were saved.
  std::vector<Entry> entries_;
  std::optional<int64_t> latest_;
  // A checkpoint that must go stays forever if it was saved after this.
  Time keep_time_;
};

struct FoundCheckpoint {
  std::filesystem::path path = {};
  Checkpoint checkpoint = {};
};

/// The latest checkpoint of a directory that is whole; damaged ones are told in the log and the one
/// before is taken. Nothing if there are none, and Error if there are some and all are damaged.
std::optional<FoundCheckpoint> load_newest_checkpoint(const std::filesystem::path& dir);

}  // namespace tensorpack
