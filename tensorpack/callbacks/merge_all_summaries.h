// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/tower/summary.h"

namespace tensorpack {

struct MergeAllSummariesOptions {
  /// Besides the last step of each epoch, report every so many steps of it; 0 does not.
  int64_t period = 0;
};

/// Hands what the tower function wants to be watched (see tower/summary.h) to the monitors, after
/// the last step of each epoch: moving averages, tensors of that very step, images, parameters.
/// Texts are handed over before training. One of the default callbacks.
class MergeAllSummaries final : public Callback {
 public:
  explicit MergeAllSummaries(MergeAllSummariesOptions options = {});

  ReportedScalars reports() const override;
  void before_train() override;
  RunArgs before_run(RunContext& context) override;
  void after_run(RunContext& context, const FetchedValues& values) override;
  void trigger_step() override;
  /// The averages as they are: after a restart they go on.
  std::string save_state() const override;
  void load_state(const std::string& state) override;

 private:
  bool is_due() const;
  void put_tensors();
  void put_params();
  std::vector<const Variable*> variables_of(const ParamSummary& param) const;

  // Some summaries of a run, and their values.
  struct Fetched {
    std::vector<detail::TensorSummary> summaries = {};
    FetchedValues values = {};
  };
  std::vector<Fetched> fetched_;                  // of the runs of this step
  const detail::Summaries* summaries_ = nullptr;  // of the graph, which owns them
  MergeAllSummariesOptions options_;
};

}  // namespace tensorpack
