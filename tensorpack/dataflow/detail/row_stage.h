// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/detail/row_source.h"

namespace tensorpack::detail {

/// A stage that changes the order of datapoints, or their number, but none of them: if the flow has
/// rows, so has the stage.
class RowStage : public DataFlow, public RowSource {
 public:
  explicit RowStage(DataFlowPtr flow) : flow_(std::move(flow)), rows_(row_source_of(*flow_)) {}

  std::optional<DataPoint> next() final;
  int64_t skip(int64_t count) override;
  bool is_endless() const override { return flow_->is_endless(); }

  bool has_rows() const final { return rows_ != nullptr; }
  std::optional<int64_t> next_row() final;
  DataPoint row(int64_t number) const final { return rows_->row(number); }
  DataPoint stack_rows(const std::vector<int64_t>& numbers) const final {
    return rows_->stack_rows(numbers);
  }

 protected:
  /// A datapoint of the flow, or the number of its row.
  struct Item {
    int64_t row = 0;
    DataPoint point = {};
  };

  /// What the stage yields next; nullopt at the end of the pass.
  virtual std::optional<Item> next_item() = 0;

  /// The next of the flow.
  std::optional<Item> read();

  DataFlow& flow() const { return *flow_; }

 private:
  DataFlowPtr flow_;
  RowSource* rows_;  // the flow, if it has rows
};

}  // namespace tensorpack::detail
