// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// A flow over the rows of something in memory. Stages that only reorder, repeat or drop hand on
/// the numbers of rows (see RowStage), so that batch() copies each row once, to its place.
class RowSource {
 public:
  virtual ~RowSource() = default;

  /// False for a stage whose flow has no rows; then nothing else may be called.
  virtual bool has_rows() const { return true; }

  /// In place of DataFlow::next(): the number of the row that it would yield.
  virtual std::optional<int64_t> next_row() = 0;

  /// The datapoint that a row is.
  virtual DataPoint row(int64_t number) const = 0;

  /// What these rows are when they are stacked; there is at least one.
  virtual DataPoint stack_rows(const std::vector<int64_t>& numbers) const = 0;
};

/// The flow as a source of rows, or nullptr if it has none. The pointer is good for as long as the
/// flow.
RowSource* row_source_of(DataFlow& flow);

}  // namespace tensorpack::detail
