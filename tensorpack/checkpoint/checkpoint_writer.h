// SPDX-License-Identifier: Apache-2.0
// Checkpoints that are written while the training goes on.
#pragma once

#include <atomic>
#include <functional>
#include <future>
#include <set>
#include <string>

#include "tensorpack/checkpoint/checkpoint_directory.h"

namespace tensorpack {

struct CheckpointWriterOptions {
  /// For messages: whose checkpoints these are.
  std::string owner = "ModelSaver";
  /// Whether to write on another thread, from a copy. Otherwise save() returns when all is done,
  /// and there is no copy.
  bool background = true;
  /// How often a checkpoint that cannot be written is tried again, and how long to wait before.
  int64_t retries = 2;
  double seconds_between_retries = 1;
};

/// Saves checkpoints, one at a time. Confined to one thread.
///
/// A checkpoint with a NaN or an infinity in a variable is refused, because every training that
/// goes on from it would fail: it is not written, and the one before stays the newest.
///
/// What it copies the variables to is kept for the next time: it takes as much of the host's memory
/// as a checkpoint has bytes.
class CheckpointWriter {
 public:
  /// Puts a checkpoint on the disk, and throws if it cannot; on another thread, unless told not to.
  using Write = std::function<void(const Checkpoint&)>;

  explicit CheckpointWriter(Write write, CheckpointWriterOptions options = {});
  /// Into a directory, as it keeps them.
  explicit CheckpointWriter(CheckpointDirectory directory, CheckpointWriterOptions options = {});
  /// Waits for what is being written.
  ~CheckpointWriter();

  /// Takes the memory for copies of these variables now, so that the first save() need not.
  void reserve(const NamedTensors& variables);

  /// Names of variables that may have NaN and infinities.
  void allow_non_finite(std::set<std::string> names);

  /// Copies a checkpoint's variables and has them written; they may change when it returns. Waits
  /// first if the one before is not written yet. A failure to write is an error in the log.
  void save(Checkpoint checkpoint);

  /// Waits until what save() was given is on the disk; says why not, or nothing if it is.
  std::string wait();

  /// Throws Error if the newest checkpoint was refused; once. Does not wait, so that it costs
  /// nothing to ask after every step.
  void check_not_refused();

 private:
  NamedTensors copy(const NamedTensors& variables);
  std::string write_or_refuse(const Checkpoint& checkpoint);
  std::string try_to_write(const Checkpoint& checkpoint);

  Write write_;
  CheckpointWriterOptions options_;
  NamedTensors copies_;
  std::future<std::string> writing_;
  std::string failure_;
  std::set<std::string> may_be_non_finite_;
  std::atomic<bool> is_refused_ = false;
};

/// Waits until no CheckpointWriter of this process has anything to write: for who wants to read the
/// newest checkpoint of a training that goes on.
void wait_for_checkpoints();

}  // namespace tensorpack
