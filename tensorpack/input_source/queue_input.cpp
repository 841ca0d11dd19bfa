// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/queue_input.h"

#include <exception>
#include <thread>

#include "tensorpack/input_source/detail/flow_stream.h"
#include "tensorpack/utils/bounded_queue.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack {
namespace {

// One run of the producer, from a start to its end. Another start gets another run, so that nothing
// of the old one can reach the new queue.
class Producer {
 public:
  Producer(detail::FlowStream& stream, int64_t capacity, int64_t position)
      : queue_(static_cast<size_t>(capacity)),
        thread_([this, &stream, position] { produce(stream, position); }) {}

  ~Producer() {
    queue_.close();
    thread_.join();
  }

  std::optional<DataPoint> next() {
    auto point = queue_.pop();
    // Set before the queue was closed, so what came before the failure has been delivered.
    if (!point && failure_) std::rethrow_exception(failure_);
    return point;
  }

  int64_t queue_size() const { return static_cast<int64_t>(queue_.size()); }

 private:
  void produce(detail::FlowStream& stream, int64_t position) {
    set_thread_name("QueueInput");
    single_threaded_ops();
    try {
      stream.seek(position);
      while (auto point = stream.next()) {
        if (!queue_.push(std::move(*point))) return;
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
    queue_.close();
  }

  BoundedQueue<DataPoint> queue_;
  std::exception_ptr failure_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace

class QueueInput::Impl {
 public:
  Impl(DataFlowPtr flow, QueueInputOptions options)
      : stream_(std::move(flow), "QueueInput", options.infinite),
        size_(stream_.size()),
        capacity_(options.capacity) {
    TP_CHECK(capacity_ > 0, "QueueInput", "the capacity must be positive, got {}.", capacity_);
  }

  void start(int64_t position) {
    TP_CHECK(position >= 0, "QueueInput", "the position must not be negative, got {}.", position);
    stop();
    producer_ = std::make_unique<Producer>(stream_, capacity_, position);
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
    return producer_->next();
  }

  std::optional<int64_t> size() const { return size_; }
  int64_t queue_size() const { return producer_ ? producer_->queue_size() : 0; }

 private:
  detail::FlowStream stream_;
  // Asked once: while the producer runs, the flow is its alone.
  std::optional<int64_t> size_;
  int64_t capacity_;
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
std::optional<int64_t> QueueInput::size() const { return impl_->size(); }
void QueueInput::stop() { impl_->stop(); }
int64_t QueueInput::queue_size() const { return impl_->queue_size(); }

}  // namespace tensorpack
