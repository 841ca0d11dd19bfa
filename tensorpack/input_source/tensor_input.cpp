// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/tensor_input.h"

#include <torch/types.h>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"

namespace tensorpack {

TensorInput::TensorInput(std::function<DataPoint(int64_t)> function, std::optional<int64_t> size)
    : function_(std::move(function)), size_(size) {
  TP_CHECK(static_cast<bool>(function_), "TensorInput", "there is no function. Pass one.");
  TP_CHECK(!size_ || *size_ > 0, "TensorInput", "the size must be positive, got {}.", *size_);
}

void TensorInput::reset_state(int64_t position) {
  TP_CHECK(position >= 0, "TensorInput", "the position must not be negative, got {}.", position);
  position_ = position;
  is_at_end_ = false;
  stopped_ = false;
}

bool TensorInput::end_with_pass() {
  ends_with_pass_ = size_.has_value();
  return ends_with_pass_;
}

std::optional<DataPoint> TensorInput::next() {
  if (stopped_ || is_at_end_) return std::nullopt;
  DataPoint batch = function_(position_);
  ++position_;
  is_at_end_ = ends_with_pass_ && position_ % *size_ == 0;
  return batch;
}

TensorInput DummyConstantInput(std::vector<FakeComponent> components, c10::Device device) {
  logging::warning("DummyConstantInput trains on zeros: it is for measuring speed.");
  DataPoint zeros;
  for (const FakeComponent& component : components) {
    zeros.push_back(at::zeros(component.shape, at::TensorOptions(component.dtype).device(device)));
  }
  return TensorInput([zeros = std::move(zeros)](int64_t) { return zeros; });
}

}  // namespace tensorpack
