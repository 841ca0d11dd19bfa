// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/from_tensors.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

FromTensors::FromTensors(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {
  TP_CHECK(!tensors_.empty(), "FromTensors", "there are no tensors. Pass at least one.");
  for (size_t i = 0; i < tensors_.size(); ++i) {
    TP_CHECK(tensors_[i].defined() && tensors_[i].dim() > 0, "FromTensors",
             "tensor {} has no rows. Pass tensors of at least one dimension.", i);
    TP_CHECK(tensors_[i].size(0) == tensors_[0].size(0), "FromTensors",
             "tensor 0 has {} and tensor {} has {}: their shapes are [{}] and [{}]. Pass "
             "equally many.",
             counted(tensors_[0].size(0), "row"), i, tensors_[i].size(0),
             fmt::join(tensors_[0].sizes(), ", "), fmt::join(tensors_[i].sizes(), ", "));
  }
  set_order({tensors_[0].size(0), /*shuffle=*/false, /*seed=*/0});
}

DataPoint FromTensors::row(int64_t number) const {
  DataPoint point;
  point.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) point.push_back(tensor.select(0, number));
  return point;
}

DataPoint FromTensors::stack_rows(const std::vector<int64_t>& numbers) const {
  DataPoint batch;
  batch.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) batch.push_back(detail::copy_rows(tensor, numbers));
  return batch;
}

}  // namespace tensorpack
