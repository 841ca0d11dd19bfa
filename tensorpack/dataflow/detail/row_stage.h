// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/detail/row_source.h"
#include "tensorpack/dataflow/detail/write_watch.h"

namespace tensorpack::detail {

/// A stage that changes the order of datapoints, or their number, but none of them: if the flow has
/// rows, so has the stage.
class RowStage : public DataFlow, public RowSource {
 public:
  explicit RowStage(DataFlowPtr flow) : flow_(std::move(flow)), rows_(row_source_of(*flow_)) {}

  /// For a stage that keeps so many datapoints: the flow must not write to them.
  RowStage(DataFlowPtr flow, const char* name, int64_t kept) : RowStage(std::move(flow)) {
    if (rows_ == nullptr) reuse_.emplace(name, kept);
  }

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

  /// To be called when a pass begins, by stages that keep datapoints.
  void keep_none() {
    if (reuse_) reuse_->forget();
  }

  DataFlow& flow() const { return *flow_; }

 private:
  DataFlowPtr flow_;
  RowSource* rows_;  // the flow, if it has rows
  std::optional<ReuseWatch> reuse_;
};

}  // namespace tensorpack::detail
