// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/feed_input.h"

#include <atomic>
#include <memory>
#include <semaphore>

#include "tensorpack/dataflow/detail/flow_stream.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/input_source/detail/producer.h"

namespace tensorpack {

// A producer that makes nothing before it is asked to.
class FeedInput::Fetcher {
 public:
  explicit Fetcher(std::shared_ptr<detail::FlowStream> stream)
      : request_(std::make_shared<Request>()),
        producer_({.thread_name = "FeedInput",
                   .single_threaded_ops = false,  // whoever asks is idle
                   .start = [] {},
                   .make =
                       [request = request_, stream = std::move(stream)] {
                         request->made.acquire();
                         return request->is_last ? std::nullopt : stream->next();
                       }}) {}

  ~Fetcher() {
    request_->is_last = true;
    request_->made.release();
  }
  Fetcher(const Fetcher&) = delete;
  Fetcher& operator=(const Fetcher&) = delete;

  std::optional<DataPoint> next() {
    request_->made.release();
    return producer_.next();
  }

 private:
  struct Request {
    std::counting_semaphore<> made{0};
    std::atomic<bool> is_last = false;
  };

  std::shared_ptr<Request> request_;
  detail::Producer<DataPoint> producer_;  // last: its thread uses the other, and ends first
};

FeedInput::FeedInput(Owned<DataFlow> flow, FeedInputOptions options)
    : stream_(std::make_shared<detail::FlowStream>(std::move(flow), "FeedInput", options.infinite)),
      size_(stream_->size()),
      interruptible_(options.interruptible) {}
FeedInput::FeedInput(FeedInput&&) noexcept = default;
FeedInput& FeedInput::operator=(FeedInput&&) noexcept = default;
FeedInput::~FeedInput() = default;

bool FeedInput::end_with_pass() {
  fetcher_.reset();  // its thread uses the stream
  stream_->end_with_pass();
  return true;
}

bool FeedInput::is_endless() const { return stream_->is_endless(); }
std::string FeedInput::name() const { return stream_->name(); }
std::shared_ptr<const StageStats> FeedInput::stats() const { return stream_->stats(); }

void FeedInput::reset_state(int64_t position) {
  fetcher_.reset();
  stream_->seek(position);
  position_ = position;
  started_ = true;
  stopped_ = false;
}

void FeedInput::stop() {
  fetcher_.reset();
  stopped_ = true;
}

std::optional<DataPoint> FeedInput::next() {
  if (stopped_) return std::nullopt;
  if (!started_) reset_state();
  if (interruptible_ && !fetcher_) fetcher_ = std::make_unique<Fetcher>(stream_);
  const detail::SampleScope sample(position_);
  std::optional<DataPoint> batch = fetcher_ ? fetcher_->next() : stream_->next();
  if (batch) ++position_;
  return batch;
}

}  // namespace tensorpack
