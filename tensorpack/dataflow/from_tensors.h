// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/detail/row_source.h"

namespace tensorpack {

/// Yields the rows of some tensors: datapoint i is {t[i] of each tensor t}.
///
/// The rows share memory with the tensors: what comes behind must not change them in place.
class FromTensors final : public DataFlow, public detail::RowSource {
 public:
  /// Throws Error if the tensors differ in their first dimension.
  explicit FromTensors(std::vector<at::Tensor> tensors);

  void start(int64_t /*pass*/) override { position_ = 0; }
  std::optional<DataPoint> next() override;
  std::optional<DataPoint> next_rows(int64_t count) override;
  int64_t skip(int64_t count) override;
  std::optional<int64_t> size() const override { return size_; }

 private:
  std::vector<at::Tensor> tensors_;
  int64_t size_ = 0;
  int64_t position_ = 0;
};

}  // namespace tensorpack
