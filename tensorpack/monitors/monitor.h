// SPDX-License-Identifier: Apache-2.0
// Where the numbers of a training go.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "tensorpack/utils/loop_state.h"

namespace tensorpack {

/// Receives what callbacks report. Override what you need; a trainer calls the methods on the
/// training thread, in the order of its callback list, where monitors come last.
class MonitorBase {
 public:
  virtual ~MonitorBase() = default;

  virtual void process_scalar(const std::string& /*name*/, double /*value*/, const LoopState&) {}
  /// `image` is [H, W], [H, W, C] or [N, H, W, C], with values in 0..255.
  virtual void process_image(const std::string& /*name*/, const at::Tensor& /*image*/,
                             const LoopState&) {}

  virtual void before_train(const LoopState&) {}
  virtual void trigger_step(const LoopState&) {}
  /// After every other callback of that epoch: what was reported for it is complete.
  virtual void trigger_epoch(const LoopState&) {}
  /// Called before a checkpoint is saved, which must not outlive the numbers it goes with: have on
  /// the disk what was written so far.
  virtual void flush() {}
  virtual void after_train(const LoopState&) {}
};

}  // namespace tensorpack
