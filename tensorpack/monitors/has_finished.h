// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/utils/loop_state.h"

namespace tensorpack {

/// Whether a training has made all its steps; else it failed, or somebody stopped it.
inline bool has_finished(const LoopState& loop) {
  return loop.epoch_num >= loop.max_epoch && loop.local_step >= loop.steps_per_epoch - 1;
}

}  // namespace tensorpack
