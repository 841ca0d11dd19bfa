// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/input_source/input_source.h"
#include "tensorpack/utils/detail/pimpl.h"
#include "tensorpack/utils/owned_list.h"

namespace tensorpack {

struct QueueInputOptions {
  /// How many batches are made ahead.
  int64_t capacity = 50;
  /// Whether the passes of the flow follow each other without end; otherwise one pass is delivered.
  bool infinite = true;
};

/// Reads a dataflow ahead on a thread of its own, into a queue.
///
///   QueueInput(FashionMnist("train") | batch(128), {.capacity = 50})
///
/// The thread starts with the first next() or reset_state(). If the flow throws, next() delivers
/// what was made before and then throws that very exception: a failure never looks like the end of
/// data.
class QueueInput final : public InputSource {
 public:
  explicit QueueInput(Owned<DataFlow> flow, QueueInputOptions options = {});
  QueueInput(QueueInput&&) noexcept;
  QueueInput& operator=(QueueInput&&) noexcept;
  ~QueueInput() override;

  void reset_state(int64_t position = 0) override;
  std::optional<DataPoint> next() override;
  int64_t position() const override;
  std::optional<int64_t> size() const override;
  bool end_with_pass() override;
  bool is_endless() const override;
  std::string name() const override;
  std::shared_ptr<const StageStats> stats() const override;

  /// Waits for the flow to finish the batch it is making, and ends the thread.
  void stop() override;

  /// How many batches are waiting. Always near 0: the data is slower than the loop.
  int64_t queue_size() const;

 private:
  class Impl;
  detail::Pimpl<Impl> impl_;
};

struct BatchQueueInputOptions {
  /// How many single datapoints are read ahead.
  int64_t capacity = 3000;
  /// Whether the passes of the flow follow each other without end; otherwise one pass is delivered.
  bool infinite = true;
};

/// Reads single datapoints ahead and makes batches of them on another thread.
///
/// For flows that come in bursts: many datapoints wait, but few batches take memory. What is left
/// over at the end of a pass is left out.
QueueInput BatchQueueInput(Owned<DataFlow> flow, int64_t batch_size,
                           BatchQueueInputOptions options = {});

}  // namespace tensorpack
