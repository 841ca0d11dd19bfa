// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/detail/flow_stream.h"
#include "tensorpack/input_source/input_source.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct FeedInputOptions {
  /// Whether the passes of the flow follow each other without end; otherwise one pass is delivered.
  bool infinite = true;
};

/// Takes each batch from a dataflow when it is asked for, on the thread that asks.
///
/// Simple and exact, but the loop waits for the data, come what may. QueueInput works ahead.
class FeedInput final : public InputSource {
 public:
  explicit FeedInput(Owned<DataFlow> flow, FeedInputOptions options = {});

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override { return position_; }
  std::optional<int64_t> size() const override { return stream_.size(); }
  std::string name() const override { return stream_.name(); }
  std::shared_ptr<const StageStats> stats() const override { return stream_.stats(); }
  void stop() override { stopped_ = true; }

 private:
  detail::FlowStream stream_;
  int64_t position_ = 0;
  bool started_ = false;
  bool stopped_ = false;
};

}  // namespace tensorpack
