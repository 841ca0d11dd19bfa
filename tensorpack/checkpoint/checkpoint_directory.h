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
};

/// The checkpoints `model-<global_step>.safetensors` in a directory, those of earlier runs
/// included.
///
/// Only one object at a time may save into a directory.
class CheckpointDirectory {
 public:
  /// Opens a directory, which need not exist before the first save().
  explicit CheckpointDirectory(std::filesystem::path dir, CheckpointDirectoryOptions options = {});

  /// The checkpoint saved last.
  std::optional<std::filesystem::path> latest() const;

  /// All checkpoints that are there, by step.
  std::vector<std::filesystem::path> all() const;

  /// Writes a checkpoint, makes it the latest, and then deletes those that may go.
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
  void read_index();
  void find_unlisted();
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

}  // namespace tensorpack
