// SPDX-License-Identifier: Apache-2.0
// What a training run saves, and the file that holds it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>

#include "tensorpack/checkpoint/fingerprint.h"
#include "tensorpack/checkpoint/safetensors.h"
#include "tensorpack/checkpoint/state_texts.h"

namespace tensorpack {

/// Of the checkpoints that are written. 2: with checksums. 3: with the seed of the data, the
/// fingerprint of the program, a counter for each set of variables that an optimizer updates, and
/// states of MinSaver and MaxSaver that name a file.
inline constexpr int64_t kCheckpointFormat = 3;

/// The state of a training run.
struct Checkpoint {
  /// By full name.
  NamedTensors variables = {};
  /// Those of them that only training needs: optimizer slots, the step counter and the like.
  std::set<std::string> training_only = {};
  int64_t global_step = 0;
  int64_t epoch_num = 0;
  /// Whatever else is needed to go on, by a name of its owner's choice.
  StateTexts extra = {};
  /// Of the program; empty where it was not asked for.
  Fingerprint fingerprint = {};
  /// Of the file that it was read from.
  int64_t format = kCheckpointFormat;
};

/// Whether a file says of itself that it is a checkpoint, and not only some tensors.
bool is_checkpoint(const Metadata& metadata);

/// Writes a checkpoint to the file `path`, all or nothing.
void save_checkpoint(const std::filesystem::path& path, const Checkpoint& checkpoint);

/// Reads a checkpoint from a file, whose extension may be left out, or the newest whole one of a
/// directory or of the file `checkpoint` in it. Throws Error if there is none, if it is not a
/// checkpoint, or if it is damaged: every tensor and text in it has a checksum.
Checkpoint load_checkpoint(const std::filesystem::path& path);

}  // namespace tensorpack
