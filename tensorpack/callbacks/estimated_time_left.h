// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/utils/timer.h"

namespace tensorpack {

struct EstimatedTimeLeftOptions {
  int64_t last_k_epochs = 5;
  /// The median of their durations, or else the mean.
  bool median = true;
};

/// Logs after every epoch how long the rest will take, from the last epochs, callbacks included.
class EstimatedTimeLeft final : public Callback {
 public:
  explicit EstimatedTimeLeft(EstimatedTimeLeftOptions options = {});

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  void trigger_epoch() override;

 private:
  EstimatedTimeLeftOptions options_;
  Timer timer_;
  std::vector<double> durations_;
};

}  // namespace tensorpack
