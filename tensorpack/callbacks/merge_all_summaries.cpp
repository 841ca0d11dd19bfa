// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/merge_all_summaries.h"

#include "tensorpack/tower/summary.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

MergeAllSummaries::MergeAllSummaries(MergeAllSummariesOptions options) : options_(options) {
  TP_CHECK(options_.period >= 0, "MergeAllSummaries",
           "the period must not be negative, got {}. Pass 0 to report once an epoch.",
           options_.period);
}

void MergeAllSummaries::trigger_step() {
  const bool is_due = trainer().loop().is_last_step_of_epoch() ||
                      (options_.period > 0 && (local_step() + 1) % options_.period == 0);
  if (!is_due) return;
  for (const auto& [name, value] : moving_summaries(graph())) {
    trainer().monitors().put_scalar(name, value);
  }
}

}  // namespace tensorpack
