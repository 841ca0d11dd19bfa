// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/collate.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/irange.h>
#include <fmt/ranges.h>
#include <torch/types.h>

#include <cstring>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {

// Lazily conjugated or negated tensors do not hold their values as bytes.
bool is_plain_memory(const at::Tensor& t) {
  return t.device().is_cpu() && t.layout() == at::kStrided && t.is_contiguous() && !t.is_conj() &&
         !t.is_neg();
}

void Collator::open(const DataPoint& first, int64_t row) {
  first_row_ = row;
  columns_.resize(first.size());
  for (const auto i : c10::irange(first.size())) {
    TP_CHECK(
        first[i].defined(), "batch",
        "component {} of a datapoint is an undefined tensor. Give it a value, or leave it out.", i);
    Column& column = columns_[i];
    std::vector<int64_t> shape = first[i].sizes().vec();
    shape.insert(shape.begin(), capacity_);
    column.batch = at::empty(shape, first[i].options().requires_grad(false));
    column.first = first[i];
    column.data =
        is_plain_memory(column.batch) ? static_cast<std::byte*>(column.batch.data_ptr()) : nullptr;
    column.row_bytes = first[i].nbytes();
  }
}

void Collator::check(const Column& column, const at::Tensor& value, size_t component,
                     int64_t row) const {
  TP_CHECK(value.defined(), "batch",
           "component {} of datapoint {} of a batch is an undefined tensor. Give it a value.",
           component, row);
  TP_CHECK(value.sizes() == column.first.sizes(), "batch",
           "component {} has shape [{}] in datapoint {} of a batch and [{}] in datapoint {}. Bring "
           "them to one shape with map() before batch().",
           component, fmt::join(column.first.sizes(), ", "), first_row_,
           fmt::join(value.sizes(), ", "), row);
  TP_CHECK(
      value.scalar_type() == column.first.scalar_type(), "batch",
      "component {} is of type {} in datapoint {} of a batch and of {} in datapoint {}. Convert "
      "them to one type with map() before batch().",
      component, c10::toString(column.first.scalar_type()), first_row_,
      c10::toString(value.scalar_type()), row);
}

void Collator::put(const DataPoint& point, int64_t row) const {
  TP_CHECK(point.size() == columns_.size(), "batch",
           "datapoint {} of a batch has {} and datapoint {} has {}. Yield the same number "
           "each time.",
           first_row_, counted(std::ssize(columns_), "component"), row, point.size());
  for (const auto i : c10::irange(columns_.size())) {
    const Column& column = columns_[i];
    check(column, point[i], i, row);
    if (column.data && is_plain_memory(point[i])) {
      std::memcpy(column.data + row * column.row_bytes, point[i].data_ptr(), column.row_bytes);
    } else {
      at::NoGradGuard no_grad;
      column.batch.select(0, row).copy_(point[i]);
    }
  }
}

void Collator::add(const DataPoint& point) {
  if (rows_ == 0) open(point, 0);
  put(point, rows_);
  ++rows_;
}

DataPoint Collator::take(int64_t rows) {
  DataPoint batch;
  batch.reserve(columns_.size());
  for (Column& column : columns_) {
    // A clone, so that a short batch does not hold the memory of a full one.
    if (rows < capacity_) column.batch = column.batch.narrow(0, 0, rows).clone();
    batch.push_back(std::move(column.batch));
  }
  columns_.clear();
  rows_ = 0;
  return batch;
}

}  // namespace tensorpack::detail
