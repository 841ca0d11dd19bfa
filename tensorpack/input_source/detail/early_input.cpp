// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/detail/early_input.h"

#include <fmt/format.h>

#include <utility>

#include "tensorpack/graph/check_batch.h"
#include "tensorpack/utils/error_context.h"

namespace tensorpack::detail {

void EarlyInput::check_first_batch(const std::vector<TensorSpec>& inputs) {
  early_position_ = position();
  if (!first_) first_ = source().next();
  has_ended_ = !first_;
  if (has_ended_) return;
  try {
    check_batch_size(inputs, *first_);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if ((*first_)[i].defined()) inputs[i].check((*first_)[i]);
    }
  } catch (...) {
    rethrow_with(fmt::format("in the first batch of the training data, from {}", name()));
  }
}

void EarlyInput::reset_state(int64_t position) {
  first_.reset();
  has_ended_ = false;
  early_position_.reset();
  source().reset_state(position);
}

std::optional<DataPoint> EarlyInput::next() {
  if (has_ended_) return std::nullopt;
  std::optional<DataPoint> batch = first_ ? std::exchange(first_, std::nullopt) : source().next();
  if (batch) early_position_.reset();
  return batch;
}

void EarlyInput::stop() {
  first_.reset();
  source().stop();
}

}  // namespace tensorpack::detail
