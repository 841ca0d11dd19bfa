// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/session/step_again.h"

namespace tensorpack {

struct GraphProfilerOptions {
  /// The step to look into, counted from 1 in this run: the first ones are slower. In a callback
  /// that is not enabled in that step, the first one behind it in which it is.
  int64_t first_step = 10;
  /// And again so many steps later, or in the first enabled step after that; 0 for once.
  int64_t every_k_steps = 0;
  /// The step is run so often, and the median is taken.
  int repetitions = 5;
  /// Writes `chrome-trace-<global_step>.json` to the log directory, for chrome://tracing or
  /// ui.perfetto.dev.
  bool dump_tracing = true;
  /// Writes every operator to `profile-<global_step>.txt` there.
  bool dump_table = true;
  /// How many layers and operators the log shows.
  int64_t shown = 10;
};

/// Says where the time of a step goes: by layer, forward and backward, and by operator.
///
/// The program that is trained is run again on the batch of the step, operator by operator, beside
/// the training, which is left as it is. On CUDA the device is waited for after each operator: what
/// runs at the same time in training is told apart here, and times add up to more than a step
/// takes. If the training ends and no step was looked into, the log says so.
class GraphProfiler final : public Callback {
 public:
  explicit GraphProfiler(GraphProfilerOptions options = {});

  ReportedScalars reports() const override { return no_scalars(); }
  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void after_train() override;

  /// What the last profile found.
  const std::vector<OperatorTime>& times() const { return times_; }

 private:
  void report() const;

  GraphProfilerOptions options_;
  int64_t steps_before_ = 0;               // of earlier runs
  std::optional<int64_t> next_step_ = {};  // to look into, by its global_step
  bool is_due_ = false;
  bool has_looked_ = false;
  std::vector<OperatorTime> times_;
};

namespace detail {

/// The table of the log.
std::string describe_profile(const std::vector<OperatorTime>& times, int64_t shown);
/// In the trace event format.
std::string to_chrome_trace(const std::vector<OperatorTime>& times);

}  // namespace detail

}  // namespace tensorpack
