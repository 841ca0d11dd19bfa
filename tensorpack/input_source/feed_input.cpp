// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/feed_input.h"

#include <atomic>
#include <memory>
#include <semaphore>
#include <utility>

#include "tensorpack/dataflow/detail/flow_stream.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/input_source/detail/producer.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

// A producer that makes nothing before it is asked to, and goes to a position first if there is
// one.
class FeedInput::Fetcher {
 public:
  Fetcher(std::shared_ptr<detail::FlowStream> stream, std::optional<int64_t> from)
      : request_(std::make_shared<Request>()),
        producer_({.thread_name = "FeedInput",
                   .starting = stream->while_seeking(from.value_or(0)),
                   .single_threaded_ops = false,  // whoever asks is idle
                   .start =
                       [stream, from] {
                         if (from) stream->seek(*from);
                       },
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

// The flow goes there with the next batch. It may do so by making all that was used before, of what
// comes from others that are not ready yet.
void FeedInput::reset_state(int64_t position) {
  TP_CHECK(position >= 0, "FeedInput", "the position must not be negative, got {}.", position);
  fetcher_.reset();
  seek_to_ = position;
  position_ = position;
  stopped_ = false;
}

void FeedInput::stop() {
  fetcher_.reset();
  stopped_ = true;
}

std::optional<DataPoint> FeedInput::next() {
  if (stopped_) return std::nullopt;
  if (interruptible_ && !fetcher_) {
    fetcher_ = std::make_unique<Fetcher>(stream_, std::exchange(seek_to_, std::nullopt));
  }
  if (seek_to_) stream_->seek(*std::exchange(seek_to_, std::nullopt));
  const detail::SampleScope sample(position_);
  std::optional<DataPoint> batch = fetcher_ ? fetcher_->next() : stream_->next();
  if (batch) ++position_;
  return batch;
}

}  // namespace tensorpack
