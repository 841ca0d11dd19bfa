// SPDX-License-Identifier: Apache-2.0
// Where a training loop stands.
#pragma once

#include <cstdint>

namespace tensorpack {

/// The counters of the double loop `for epoch: for step: run_step()`.
struct LoopState {
  /// The epoch that is running, or that the last trigger_epoch() belonged to; starting_epoch - 1
  /// before the first.
  int64_t epoch_num = 0;
  /// 0-based index of the step in its epoch; -1 before the first.
  int64_t local_step = -1;
  /// How many hooked runs were ever made, checkpoints included.
  int64_t global_step = 0;
  int64_t steps_per_epoch = 0;
  int64_t starting_epoch = 1;
  /// How many steps of the first epoch were made by an earlier run.
  int64_t starting_step = 0;
  int64_t max_epoch = 0;

  bool is_last_step_of_epoch() const { return local_step == steps_per_epoch - 1; }
  /// Whether the training goes on with what an earlier run has begun. Weights alone, with which the
  /// first epoch starts, do not make it so.
  bool is_resumed() const { return global_step > 0 && (starting_epoch > 1 || starting_step > 0); }
};

}  // namespace tensorpack
