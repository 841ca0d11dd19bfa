// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// A flow that makes several datapoints for less than one after the other.
class RowSource {
 public:
  virtual ~RowSource() = default;

  /// What the next `count` datapoints are when they are stacked; fewer at the end of the pass, and
  /// nullopt if there is none.
  virtual std::optional<DataPoint> next_rows(int64_t count) = 0;
};

/// The same of any flow of a pipe that can, or nullptr; its time is taken. The pointer is good for
/// as long as the flow.
RowSource* row_source_of(DataFlow& flow);

}  // namespace tensorpack::detail
