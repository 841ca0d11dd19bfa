// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack::detail {

/// A dataflow seen as the stream of its passes, one after the other.
class FlowStream {
 public:
  /// `where` names the source in errors. If the stream is not `infinite`, it ends with the pass it
  /// was positioned in.
  FlowStream(DataFlowPtr flow, const char* where, bool infinite);

  /// Goes to datapoint number `position` of the stream.
  ///
  /// Where the flow knows its size, whole passes are left out; the rest is for DataFlow::skip().
  void seek(int64_t position);
  /// What to tell a user who waits for that.
  std::string while_seeking(int64_t position) const;

  /// Goes to the beginning of a pass of the flow.
  void start_pass(int64_t pass);

  /// The next datapoint. Throws Error rather than searching forever in passes without datapoints.
  std::optional<DataPoint> next();

  std::optional<int64_t> size() const { return flow_->size(); }
  /// Whether it is known that next() never gives the end.
  bool is_endless() const { return infinite_ || flow_is_endless_; }
  /// From now on the stream ends with the pass that it was positioned in.
  void end_with_pass() { infinite_ = false; }

  /// The source and the last stage of the flow: "QueueInput(Batch)".
  std::string name() const;
  /// Where the time of the flow goes.
  const std::shared_ptr<StageStats>& stats() const { return stats_; }

 private:
  void skip(int64_t count);
  void check_progress(bool has_datapoints) const;
  std::optional<DataPoint> next_of_any_pass();

  DataFlowPtr flow_;
  std::shared_ptr<StageStats> stats_;
  const char* where_;
  bool infinite_;
  bool flow_is_endless_;
  int64_t pass_ = 0;
  std::optional<DataPoint> peeked_;
};

}  // namespace tensorpack::detail
