// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/feed_input.h"

#include "tensorpack/dataflow/stage_stats.h"

namespace tensorpack {

FeedInput::FeedInput(Owned<DataFlow> flow, FeedInputOptions options)
    : stream_(std::move(flow), "FeedInput", options.infinite) {}

void FeedInput::reset_state(int64_t position) {
  stream_.seek(position);
  position_ = position;
  started_ = true;
  stopped_ = false;
}

std::optional<DataPoint> FeedInput::next() {
  if (stopped_) return std::nullopt;
  if (!started_) reset_state();
  const detail::SampleScope sample(position_);
  std::optional<DataPoint> batch = stream_.next();
  if (batch) ++position_;
  return batch;
}

}  // namespace tensorpack
