// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// How many datapoints the flows have together; nullopt if one of them does not know.
inline std::optional<int64_t> total_size(const std::vector<DataFlowPtr>& flows) {
  int64_t total = 0;
  for (const DataFlowPtr& flow : flows) {
    const auto size = flow->size();
    if (!size) return std::nullopt;
    total += *size;
  }
  return total;
}

}  // namespace tensorpack::detail
