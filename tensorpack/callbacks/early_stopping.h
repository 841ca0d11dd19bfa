// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/callbacks/detail/awaited_scalar.h"

namespace tensorpack {

struct EarlyStoppingOptions {
  /// The scalar to watch.
  std::string stat_name = {};
  /// How many reports in a row may be no better than the best.
  int64_t patience = 10;
  /// How much smaller than the best a value must be to count as better.
  double threshold = 0;
  /// It is greater that counts.
  bool reverse = false;
};

/// Ends training, normally, when a scalar does not get better any more. The epoch in which that
/// happens is finished: it is validated, saved and written. Put it behind what reports the scalar.
/// What it has seen is in checkpoints.
class EarlyStopping final : public Callback {
 public:
  explicit EarlyStopping(EarlyStoppingOptions options);

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  void trigger() override;
  void after_train() override { scalar_.check_after(trainer()); }
  std::string save_state() const override;
  void load_state(const std::string& state) override;

 private:
  EarlyStoppingOptions options_;
  AwaitedScalar scalar_;
  std::optional<double> best_;
  int64_t worse_ = 0;  // reports since the best
  int64_t last_step_ = -1;
};

}  // namespace tensorpack
