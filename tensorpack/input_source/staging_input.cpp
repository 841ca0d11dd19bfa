// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/input_source/staging_input.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <deque>

#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/input_source/detail/producer.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"
#include "tensorpack/utils/wait_for_device.h"

namespace tensorpack {
namespace {

struct Staged {
  DataPoint batch = {};
  std::unique_ptr<c10::Event> arrival = {};  // null for batches that were not copied
};

// Copies batches to a device on a stream of its own.
class Copier {
 public:
  explicit Copier(c10::Device device)
      : device_(device),
        backend_(device.type()),
        stream_(backend_.getStreamFromGlobalPool(device)) {
    if (!device_.has_index()) device_ = stream_.device();
  }

  // On the thread that works ahead. A source that works on the device does so on this stream, too.
  std::optional<Staged> stage(InputSource& source) const {
    const c10::StreamGuard on_copy_stream(stream_);
    std::optional<DataPoint> taken = source.next();
    if (!taken) return std::nullopt;
    DataPoint& batch = *taken;
    for (at::Tensor& tensor : batch) {
      if (!tensor.defined() || !tensor.device().is_cpu()) continue;
      tensor = tensor.pin_memory().to(device_, tensor.scalar_type(), /*non_blocking=*/true);
    }
    auto arrival = std::make_unique<c10::Event>(device_.type());
    arrival->record(stream_);
    return Staged{std::move(batch), std::move(arrival)};
  }

  // On the thread of the loop: what it issues next waits for the copy.
  void hand_over(const Staged& staged) const {
    const c10::Stream stream = backend_.getStream(device_);
    staged.arrival->block(stream);
    for (const at::Tensor& tensor : staged.batch) {
      if (tensor.defined()) tensor.record_stream(stream);
    }
  }

  c10::Event mark() const {
    c10::Event event(device_.type());
    event.record(backend_.getStream(device_));
    return event;
  }

 private:
  c10::Device device_;
  c10::impl::VirtualGuardImpl backend_;
  c10::Stream stream_;
};

}  // namespace

class StagingInput::Impl {
 public:
  Impl(Owned<InputSource> source, StagingInputOptions options)
      : source_(std::unique_ptr<InputSource>(std::move(source))), options_(std::move(options)) {
    TP_CHECK(static_cast<bool>(source_), "StagingInput", "there is no source. Pass one.");
    TP_CHECK(options_.ahead > 0 && options_.steps_in_flight > 0, "StagingInput",
             "ahead {} and steps_in_flight {} must be positive.", options_.ahead,
             options_.steps_in_flight);
    TP_CHECK(!options_.devices.empty(), "StagingInput", "there is no device. Pass at least one.");
    size_ = source_->size();
    stats_ = source_->stats();
    for (const c10::Device& device : options_.devices) {
      copiers_.push_back(device.is_cuda() ? std::make_shared<Copier>(device) : nullptr);
    }
  }

  void start(int64_t position) {
    stop();
    TP_CHECK(!is_source_lost_, "StagingInput",
             "its thread was left behind when a signal came, and still uses {}. Make a new source.",
             source_->name());
    // Here, so that a wrong position is the caller's error.
    source_->reset_state(position);
    producer_ = std::make_unique<Producer>(
        Producer::Work{.thread_name = "StagingInput",
                       .capacity = static_cast<size_t>(options_.ahead) * copiers_.size(),
                       .start = [] {},
                       .make =
                           [source = source_, copiers = copiers_, number = position,
                            reuse = watch_over_held()]() mutable {
                             return make(*source, copier_for(number++, copiers).get(), reuse);
                           }});
    position_ = position;
    stopped_ = false;
  }

  void stop() {
    if (producer_ && !producer_->end()) is_source_lost_ = true;
    producer_.reset();
    in_flight_.clear();
    if (!is_source_lost_) source_->stop();
    stopped_ = true;
  }

  std::optional<DataPoint> next() {
    if (!producer_) {
      if (stopped_) return std::nullopt;
      start(0);
    }
    std::optional<Staged> staged = producer_->next();
    if (!staged) return std::nullopt;
    const std::shared_ptr<Copier>& copier = copier_for(position_++, copiers_);
    if (staged->arrival) {
      copier->hand_over(*staged);
      limit_steps_in_flight(*copier);
    }
    return std::move(staged->batch);
  }

  int64_t position() const { return position_; }
  std::optional<int64_t> size() const { return size_; }

  bool end_with_pass() {
    stop();  // its thread uses the source
    stopped_ = false;
    return !is_source_lost_ && source_->end_with_pass();
  }

  bool is_endless() const { return source_->is_endless(); }
  std::shared_ptr<const StageStats> stats() const { return stats_; }
  const InputSource& origin() const { return source_->origin(); }

 private:
  using Producer = detail::Producer<Staged>;

  using Copiers = std::vector<std::shared_ptr<Copier>>;  // by device; null for the CPU

  static const std::shared_ptr<Copier>& copier_for(int64_t batch, const Copiers& copiers) {
    return copiers[static_cast<size_t>(batch) % copiers.size()];
  }

  // Of the batches that wait, and of those that the towers have.
  detail::ReuseWatch watch_over_held() const {
    const auto towers = static_cast<int64_t>(copiers_.size());
    return {"StagingInput", (options_.ahead + 1) * towers + 1};
  }

  static std::optional<Staged> make(InputSource& source, const Copier* copier,
                                    detail::ReuseWatch& reuse) {
    if (copier) return copier->stage(source);
    std::optional<DataPoint> batch = source.next();
    if (!batch) return std::nullopt;
    reuse.look(*batch);
    return Staged{std::move(*batch), nullptr};
  }

  // Without it a loop that waits for nothing would fill the memory with batches still to be used.
  void limit_steps_in_flight(const Copier& copier) {
    in_flight_.push_back(copier.mark());
    if (in_flight_.size() <= static_cast<size_t>(options_.steps_in_flight) * copiers_.size()) {
      return;
    }
    wait_for(in_flight_.front());
    in_flight_.pop_front();
  }

  std::shared_ptr<InputSource> source_;  // shared with the thread, as are the copiers
  StagingInputOptions options_;
  // Asked once: while the producer runs, the source is its alone.
  std::optional<int64_t> size_;
  std::shared_ptr<const StageStats> stats_;
  Copiers copiers_;
  std::deque<c10::Event> in_flight_;
  int64_t position_ = 0;
  bool stopped_ = false;
  bool is_source_lost_ = false;  // to a thread that was left behind
  std::unique_ptr<Producer> producer_;
};

StagingInput::StagingInput(Owned<InputSource> source, StagingInputOptions options)
    : impl_(std::make_unique<Impl>(std::move(source), std::move(options))) {}
StagingInput::StagingInput(StagingInput&&) noexcept = default;
StagingInput& StagingInput::operator=(StagingInput&&) noexcept = default;
StagingInput::~StagingInput() = default;

void StagingInput::reset_state(int64_t position) { impl_->start(position); }
std::optional<DataPoint> StagingInput::next() { return impl_->next(); }
int64_t StagingInput::position() const { return impl_->position(); }
std::optional<int64_t> StagingInput::size() const { return impl_->size(); }
bool StagingInput::end_with_pass() { return impl_->end_with_pass(); }
bool StagingInput::is_endless() const { return impl_->is_endless(); }
std::shared_ptr<const StageStats> StagingInput::stats() const { return impl_->stats(); }
void StagingInput::stop() { impl_->stop(); }
const InputSource& StagingInput::origin() const { return impl_->origin(); }

bool wants_staging(const InputSource& source, const std::vector<c10::Device>& devices) {
  const bool has_gpu = std::any_of(devices.begin(), devices.end(),
                                   [](const c10::Device& device) { return device.is_cuda(); });
  return has_gpu && dynamic_cast<const StagingInput*>(&source) == nullptr;
}

Owned<InputSource> staged(Owned<InputSource> source, std::vector<c10::Device> devices) {
  if (!wants_staging(*source, devices)) return source;
  std::vector<std::string> names;
  for (const c10::Device& device : devices) names.push_back(device.str());
  logging::info("Data is copied to {} ahead by a StagingInput.", join(names, ", "));
  return StagingInput(std::move(source), {.devices = std::move(devices)});
}

}  // namespace tensorpack
