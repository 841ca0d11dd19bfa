// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "tensorpack/input_source/input_source.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

namespace detail {
class FlowStream;
}

struct FeedInputOptions {
  /// Whether the passes of the flow follow each other without end; otherwise one pass is delivered.
  bool infinite = true;
  /// Whether the flow runs on a thread of its own, while the one that asks waits: then a signal is
  /// heeded though the data does not come. Costs some microseconds a batch.
  bool interruptible = true;
};

/// Takes each batch from a dataflow when it is asked for, and not before.
///
/// Simple and exact, but the loop waits for the data. QueueInput works ahead. If a signal is to end
/// the process while it waits, next() throws Interrupted.
class FeedInput final : public InputSource {
 public:
  explicit FeedInput(Owned<DataFlow> flow, FeedInputOptions options = {});
  FeedInput(FeedInput&&) noexcept;
  FeedInput& operator=(FeedInput&&) noexcept;
  ~FeedInput() override;

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override { return position_; }
  std::optional<int64_t> size() const override { return size_; }
  bool end_with_pass() override;
  bool is_endless() const override;
  std::string name() const override;
  std::shared_ptr<const StageStats> stats() const override;
  void stop() override;

 private:
  class Fetcher;

  std::shared_ptr<detail::FlowStream> stream_;  // shared with the thread
  std::optional<int64_t> size_;
  detail::Pimpl<Fetcher> fetcher_;  // of a flow that runs on its own thread
  bool interruptible_;
  int64_t position_ = 0;
  std::optional<int64_t> seek_to_ = 0;  // where the flow is to go before its next batch
  bool stopped_ = false;
};

}  // namespace tensorpack
