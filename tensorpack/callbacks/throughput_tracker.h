// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {

struct ThroughputTrackerOptions {
  /// How many samples a step takes, of all towers and processes; 0 reports steps.
  int64_t samples_per_step = 0;
};

/// Reports `Throughput (steps/sec)` or `Throughput (samples/sec)` when triggered, from the time
/// within epochs: validation and saving do not count.
class ThroughputTracker final : public Callback {
 public:
  explicit ThroughputTracker(ThroughputTrackerOptions options = {});

  ReportedScalars reports() const override;
  void before_train() override;
  void before_epoch() override { timer_.resume(); }
  void after_epoch() override { timer_.pause(); }
  void trigger() override;

 private:
  void start();

  ThroughputTrackerOptions options_;
  Timer timer_;
  int64_t first_step_ = 0;
};

}  // namespace tensorpack
