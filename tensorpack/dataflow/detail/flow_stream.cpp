// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/flow_stream.h"

#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

FlowStream::FlowStream(DataFlowPtr flow, const char* where, bool infinite)
    : flow_(std::move(flow)), where_(where), infinite_(infinite) {
  TP_CHECK(flow_, where_, "the dataflow is null. Pass a flow.");
  stats_ = meter(flow_);
  flow_is_endless_ = flow_->is_endless();
}

void FlowStream::seek(int64_t position) {
  TP_CHECK(position >= 0, where_, "the position must not be negative, got {}.", position);
  const int64_t size = flow_->size().value_or(0);
  start_pass(size > 0 ? position / size : 0);
  skip(size > 0 ? position % size : position);
  // Whether the position is the end of one pass or the beginning of another, only the flow can say.
  if (size == 0 && position > 0) peeked_ = next_of_any_pass();
}

std::string FlowStream::while_seeking(int64_t position) const {
  return fmt::format(
      "{} still goes to batch {}, where training goes on: it makes what was used before again. A "
      "flow that need not, such as experience replay, overrides DataFlow::skip().",
      name(), position);
}

std::optional<DataPoint> FlowStream::next() {
  if (peeked_) return std::exchange(peeked_, std::nullopt);
  return infinite_ ? next_of_any_pass() : flow_->next();
}

std::string FlowStream::name() const { return fmt::format("{}({})", where_, stats_->name); }

void FlowStream::start_pass(int64_t pass) {
  peeked_.reset();
  pass_ = pass;
  flow_->start(pass);
}

void FlowStream::skip(int64_t count) {
  count -= flow_->skip(count);
  while (count > 0) {
    start_pass(pass_ + 1);
    const int64_t skipped = flow_->skip(count);
    check_progress(skipped > 0);
    count -= skipped;
  }
}

std::optional<DataPoint> FlowStream::next_of_any_pass() {
  auto point = flow_->next();
  if (point) return point;
  start_pass(pass_ + 1);
  point = flow_->next();
  check_progress(point.has_value());
  return point;
}

void FlowStream::check_progress(bool has_datapoints) const {
  TP_CHECK(
      has_datapoints, where_,
      "pass {} of the dataflow has no datapoints, so going on would never yield one. Check what "
      "the flow reads, what map() drops, whether a batch is larger than a pass, and that a flow "
      "of your own goes back to its beginning in start().",
      pass_);
}

}  // namespace tensorpack::detail
