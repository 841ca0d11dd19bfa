// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/monitors/monitor.h"
#include "tensorpack/utils/loop_state.h"

namespace tensorpack {

struct Epochs {
  int64_t first = 1;
  int64_t last = 1;
  bool reports_error = true;
};

/// Does to a monitor what a training does: two steps an epoch, with the scalar `cost` in every
/// step, and `error` at the end of every epoch.
inline void run_epochs(MonitorBase& monitor, const Epochs& epochs) {
  LoopState loop{.epoch_num = epochs.first - 1,
                 .global_step = 2 * (epochs.first - 1),
                 .steps_per_epoch = 2,
                 .starting_epoch = epochs.first,
                 .max_epoch = epochs.last};
  monitor.before_train(loop);
  for (loop.epoch_num = epochs.first; loop.epoch_num <= epochs.last; ++loop.epoch_num) {
    for (loop.local_step = 0; loop.local_step < 2; ++loop.local_step) {
      ++loop.global_step;
      monitor.process_scalar("cost", 1.0 / static_cast<double>(loop.global_step), loop);
      monitor.trigger_step(loop);
    }
    loop.local_step = 1;
    if (epochs.reports_error) monitor.process_scalar("error", 0.25, loop);
    monitor.trigger_epoch(loop);
  }
  monitor.after_train(loop);
}

}  // namespace tensorpack
