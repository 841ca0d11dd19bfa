// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

struct MergeAllSummariesOptions {
  /// Besides the last step of each epoch, report every so many steps of it; 0 does not.
  int64_t period = 0;
};

/// Hands every moving average (see add_moving_summary()) to the monitors, after the last step of
/// each epoch. One of the default callbacks.
class MergeAllSummaries final : public Callback {
 public:
  explicit MergeAllSummaries(MergeAllSummariesOptions options = {});

  void trigger_step() override;
  /// The averages as they are: after a restart they go on.
  std::string save_state() const override;
  void load_state(const std::string& state) override;

 private:
  MergeAllSummariesOptions options_;
};

}  // namespace tensorpack
