// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/queue_input.h"

#include "tensorpack/dataflow/batch.h"
#include "tensorpack/dataflow/detail/flow_stream.h"
#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/dataflow/prefetch.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/input_source/detail/producer.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

class QueueInput::Impl {
 public:
  Impl(DataFlowPtr flow, QueueInputOptions options)
      : stream_(
            std::make_shared<detail::FlowStream>(std::move(flow), "QueueInput", options.infinite)),
        size_(stream_->size()),
        capacity_(options.capacity) {
    TP_CHECK(capacity_ > 0, "QueueInput", "the capacity must be positive, got {}.", capacity_);
    stats_ = std::make_shared<StageStats>("QueueInput", 1, capacity_);
    stats_->inputs.push_back(stream_->stats());
  }

  void start(int64_t position) {
    TP_CHECK(position >= 0, "QueueInput", "the position must not be negative, got {}.", position);
    stop();
    producer_ = std::make_unique<Producer>(Producer::Work{
        .thread_name = "QueueInput",
        .capacity = static_cast<size_t>(capacity_),
        .starting = stream_->while_seeking(position),
        .stats = stats_,
        .start = [stream = stream_, position] { stream->seek(position); },
        .make =
            [stream = stream_, reuse = detail::ReuseWatch(name(), capacity_ + 2)]() mutable {
              std::optional<DataPoint> batch = stream->next();
              if (batch) reuse.look(*batch);
              return batch;
            }});
    position_ = position;
    stopped_ = false;
  }

  void stop() {
    producer_.reset();
    stopped_ = true;
  }

  std::optional<DataPoint> next() {
    if (!producer_) {
      if (stopped_) return std::nullopt;
      start(0);
    }
    std::optional<DataPoint> batch = producer_->next();
    if (batch) ++position_;
    return batch;
  }

  int64_t position() const { return position_; }
  std::shared_ptr<const StageStats> stats() const { return stats_; }
  std::optional<int64_t> size() const { return size_; }

  bool end_with_pass() {
    producer_.reset();  // its thread uses the stream
    stream_->end_with_pass();
    return true;
  }

  bool is_endless() const { return stream_->is_endless(); }
  std::string name() const { return stream_->name(); }
  int64_t queue_size() const { return producer_ ? static_cast<int64_t>(producer_->size()) : 0; }

 private:
  using Producer = detail::Producer<DataPoint>;

  std::shared_ptr<detail::FlowStream> stream_;  // shared with the thread
  std::shared_ptr<StageStats> stats_;
  // Asked once: while the producer runs, the flow is its alone.
  std::optional<int64_t> size_;
  int64_t capacity_;
  int64_t position_ = 0;
  bool stopped_ = false;
  std::unique_ptr<Producer> producer_;
};

QueueInput::QueueInput(Owned<DataFlow> flow, QueueInputOptions options)
    : impl_(std::make_unique<Impl>(std::move(flow), options)) {}
QueueInput::QueueInput(QueueInput&&) noexcept = default;
QueueInput& QueueInput::operator=(QueueInput&&) noexcept = default;
QueueInput::~QueueInput() = default;

void QueueInput::reset_state(int64_t position) { impl_->start(position); }
std::optional<DataPoint> QueueInput::next() { return impl_->next(); }
int64_t QueueInput::position() const { return impl_->position(); }
std::optional<int64_t> QueueInput::size() const { return impl_->size(); }
bool QueueInput::end_with_pass() { return impl_->end_with_pass(); }
bool QueueInput::is_endless() const { return impl_->is_endless(); }
std::string QueueInput::name() const { return impl_->name(); }
std::shared_ptr<const StageStats> QueueInput::stats() const { return impl_->stats(); }
void QueueInput::stop() { impl_->stop(); }
int64_t QueueInput::queue_size() const { return impl_->queue_size(); }

QueueInput BatchQueueInput(Owned<DataFlow> flow, int64_t batch_size,
                           BatchQueueInputOptions options) {
  constexpr int64_t kBatches = 2;
  DataFlowPtr points = std::move(flow);
  return QueueInput(std::move(points) | prefetch(options.capacity) | batch(batch_size),
                    {.capacity = kBatches, .infinite = options.infinite});
}

}  // namespace tensorpack
