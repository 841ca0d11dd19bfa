// SPDX-License-Identifier: Apache-2.0
// Flows of plain numbers, whose order is easy to write down.
#pragma once

#include <torch/types.h>

#include <vector>

#include "tensorpack/dataflow/from_list.h"
#include "tests/support/dataflow_contract.h"

namespace tensorpack::test {

/// Yields the scalars 0, 1, ..., count-1.
inline FromList numbers(int64_t count) {
  std::vector<DataPoint> points;
  for (int64_t i = 0; i < count; ++i) points.push_back({torch::scalar_tensor(i, torch::kLong)});
  return FromList(std::move(points));
}

/// The elements of component 0, from where the flow stands to the end of the pass.
inline std::vector<int64_t> values(DataFlow& flow, int64_t limit = 200) {
  std::vector<int64_t> result;
  for (const DataPoint& point : collect(flow, limit)) {
    const auto flat = point[0].to(torch::kLong).flatten();
    result.insert(result.end(), flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel());
  }
  return result;
}

inline std::vector<int64_t> values_of_pass(DataFlow& flow, int64_t pass, int64_t limit = 200) {
  flow.start(pass);
  return values(flow, limit);
}

}  // namespace tensorpack::test
