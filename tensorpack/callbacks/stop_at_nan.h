// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"

namespace tensorpack {

struct StopAtNaNOptions {
  /// The scalar to look at; the costs of the trainer when empty. A training that does not have it
  /// is not looked at, with a warning.
  std::string tensor = {};
  /// End the training with an Error; otherwise say it once and go on.
  bool stops = true;
};

/// Ends a training whose cost is not a finite number any more, before it is saved: the last good
/// checkpoint stays the newest. A default callback. On CUDA it looks at each value one step late,
/// so that nothing waits.
class StopAtNaN final : public Callback {
 public:
  explicit StopAtNaN(StopAtNaNOptions options = {}) : options_(std::move(options)) {
    set_chief_only(false);
  }

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void after_epoch() override { look(); }

 private:
  void look();

  struct Seen {
    std::vector<std::string> names;
    FetchedValues values;
    int64_t step;
  };
  StopAtNaNOptions options_;
  std::vector<std::string> watched_;
  std::vector<std::string> fetched_;  // by the run in progress
  std::optional<Seen> unread_;
  bool is_told_ = false;
};

}  // namespace tensorpack
