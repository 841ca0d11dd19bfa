// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/detail/row_flow.h"

namespace tensorpack {

/// Yields the rows of some tensors: datapoint i is {t[i] of each tensor t}.
///
/// The rows share memory with the tensors: what comes behind must not change them in place.
/// A warning tells of it.
class FromTensors final : public detail::RowFlow {
 public:
  /// Throws Error if the tensors differ in their first dimension.
  explicit FromTensors(std::vector<at::Tensor> tensors);

  DataPoint row(int64_t number) const override;
  DataPoint stack_rows(const std::vector<int64_t>& numbers) const override;

 private:
  Shared shared() const override { return {"FromTensors", tensors_}; }

  std::vector<at::Tensor> tensors_;
};

}  // namespace tensorpack
