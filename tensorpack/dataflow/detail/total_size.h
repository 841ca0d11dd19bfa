// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
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

inline bool any_endless(const std::vector<DataFlowPtr>& flows) {
  return std::ranges::any_of(flows, [](const DataFlowPtr& flow) { return flow->is_endless(); });
}

inline bool all_endless(const std::vector<DataFlowPtr>& flows) {
  return std::ranges::all_of(flows, [](const DataFlowPtr& flow) { return flow->is_endless(); });
}

}  // namespace tensorpack::detail
