// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/from_tensors.h"

#include <torch/types.h>

#include <algorithm>

#include "tensorpack/utils/error.h"

namespace tensorpack {

FromTensors::FromTensors(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  TP_CHECK(!tensors_.empty(), "FromTensors", "there are no tensors. Pass at least one.");
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TP_CHECK(tensors_[i].defined() && tensors_[i].dim() > 0, "FromTensors",
             "tensor {} has no rows. Pass tensors of at least one dimension.", i);
    TP_CHECK(tensors_[i].size(0) == tensors_[0].size(0), "FromTensors",
             "tensor 0 has {} rows and tensor {} has {}. Pass equally many.", tensors_[0].size(0),
             i, tensors_[i].size(0));
  }
  size_ = tensors_[0].size(0);
}

std::optional<DataPoint> FromTensors::next() {
  if (position_ == size_) return std::nullopt;
  DataPoint point;
  point.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) point.push_back(tensor.select(0, position_));
  ++position_;
  return point;
}

std::optional<DataPoint> FromTensors::next_rows(int64_t count) {
  const int64_t rows = std::min(count, size_ - position_);
  if (rows == 0) return std::nullopt;
  DataPoint batch;
  batch.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) {
    batch.push_back(tensor.detach().narrow(0, position_, rows).clone(at::MemoryFormat::Contiguous));
  }
  position_ += rows;
  return batch;
}

int64_t FromTensors::skip(int64_t count) {
  count = std::min(count, size_ - position_);
  position_ += count;
  return count;
}

}  // namespace tensorpack
