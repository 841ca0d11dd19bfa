// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/detail/pass_order.h"
#include "tensorpack/dataflow/detail/row_source.h"
#include "tensorpack/dataflow/detail/write_watch.h"

namespace tensorpack::detail {

/// A data set in memory: its rows come as they are, or shuffled anew in each pass. Derived classes
/// say what a row is.
class RowFlow : public DataFlow, public RowSource {
 public:
  void start(int64_t pass) final;
  std::optional<DataPoint> next() final;
  int64_t skip(int64_t count) final { return order_.skip(count); }
  std::optional<int64_t> size() const final { return order_.size(); }
  std::optional<int64_t> next_row() final { return order_.next(); }

 protected:
  explicit RowFlow(PassOrder order = {0, false, 0}) : order_(std::move(order)) {}

  /// What rows share memory with, and the name of the flow: what comes behind must not write there.
  struct Shared {
    const char* flow = "";
    std::vector<at::Tensor> tensors = {};
  };
  virtual Shared shared() const { return {}; }

  /// For constructors that find out late how many rows there are.
  void set_order(PassOrder order) { order_ = std::move(order); }

 private:
  PassOrder order_;
  WriteWatch watch_;
};

/// These rows of a tensor, in memory of their own.
at::Tensor copy_rows(const at::Tensor& tensor, const std::vector<int64_t>& numbers);

}  // namespace tensorpack::detail
