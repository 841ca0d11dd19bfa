// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/print_stages.h"

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

PrintStages::PrintStages(const DataFlow& flow) : stats_(detail::stats_of(flow)) {
  TP_CHECK(stats_ != nullptr, "PrintStages",
           "the flow was not made with `|`, so that it has no stages to tell of.");
}

void PrintStages::trigger() {
  logging::info("Where the time of the data goes, so far:\n{}",
                format_stages(stage_report(*stats_)));
}

}  // namespace tensorpack
