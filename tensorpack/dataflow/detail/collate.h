// SPDX-License-Identifier: Apache-2.0
// Stacking datapoints into a batch, one at a time.
#pragma once

#include <vector>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// Whether the values of a tensor are its bytes, one after the other.
bool is_plain_memory(const at::Tensor& t);

/// Copies datapoints into the rows of tensors allocated once per batch.
class Collator {
 public:
  explicit Collator(int64_t capacity) : capacity_(capacity) {}

  /// Appends `point` as the next row; the first one of a batch decides shapes and types.
  void add(const DataPoint& point);

  int64_t rows() const { return rows_; }

  /// The batch collected so far; the collator is empty afterwards.
  DataPoint take() { return take(rows_); }

  /// For rows that do not come in order: open() once with any of them, then put() all, at the same
  /// time if they are different ones, then take() the first `rows`.
  void open(const DataPoint& first, int64_t row);
  void put(const DataPoint& point, int64_t row) const;
  DataPoint take(int64_t rows);

 private:
  // One component of the batch. `data` is set where rows can be copied as plain bytes.
  struct Column {
    at::Tensor batch;
    at::Tensor first;
    std::byte* data = nullptr;
    size_t row_bytes = 0;
  };

  void check(const Column& column, const at::Tensor& value, size_t component, int64_t row) const;

  int64_t capacity_;
  int64_t rows_ = 0;
  int64_t first_row_ = 0;  // the one that decided shapes and types
  std::vector<Column> columns_;
};

}  // namespace tensorpack::detail
