// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/zmq_input.h"

#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack {

ZMQInput::ZMQInput(std::vector<std::string> addresses, RemoteDataOptions options)
    : data_(std::move(addresses), std::move(options)) {}

void ZMQInput::reset_state(int64_t position) {
  TP_CHECK(position >= 0, "ZMQInput", "the position must not be negative, got {}.", position);
  position_ = position;
  stopped_ = false;
}

std::optional<DataPoint> ZMQInput::next() {
  if (stopped_) return std::nullopt;
  auto batch = data_.next();
  if (batch) ++position_;
  return batch;
}

}  // namespace tensorpack
