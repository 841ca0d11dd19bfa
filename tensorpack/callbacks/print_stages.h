// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "tensorpack/callbacks/callback.h"
#include "tensorpack/dataflow/stage_stats.h"

namespace tensorpack {

/// Logs, whenever triggered, where the time of a dataflow goes: a line for every stage.
///
///   DataFlowPtr train = FashionMnist("train") | parallel_map(augment) | batch(128);
///   PrintStages stages(*train);                       // before the flow is given away
class PrintStages final : public Callback {
 public:
  /// Of a flow made with `|`. Throws Error for others: there is nothing to tell of them.
  explicit PrintStages(const DataFlow& flow);

  ReportedScalars reports() const override { return no_scalars(); }
  void trigger() override;

 private:
  std::shared_ptr<const StageStats> stats_;
};

}  // namespace tensorpack
