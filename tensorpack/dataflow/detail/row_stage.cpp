// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/row_stage.h"

namespace tensorpack::detail {

std::optional<DataPoint> RowStage::next() {
  auto item = next_item();
  if (!item) return std::nullopt;
  return rows_ ? rows_->row(item->row) : std::move(item->point);
}

std::optional<int64_t> RowStage::next_row() {
  const auto item = next_item();
  if (!item) return std::nullopt;
  return item->row;
}

int64_t RowStage::skip(int64_t count) {
  int64_t skipped = 0;
  while (skipped < count && next_item()) ++skipped;
  return skipped;
}

std::optional<RowStage::Item> RowStage::read() {
  if (rows_) {
    const auto row = rows_->next_row();
    if (!row) return std::nullopt;
    return Item{.row = *row};
  }
  auto point = flow_->next();
  if (!point) return std::nullopt;
  if (reuse_) reuse_->look(*point);
  return Item{.point = std::move(*point)};
}

}  // namespace tensorpack::detail
