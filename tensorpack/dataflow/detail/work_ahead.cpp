// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/work_ahead.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "tensorpack/dataflow/detail/write_watch.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack::detail {
namespace {

// How long is waited before looking whether the process or the thread is to end.
constexpr std::chrono::milliseconds kPatience{100};

// Whoever waits for data on a thread that is to end.
struct Abandoned {};

// Watches for a moment whether `is_done` comes true: to sleep and be woken up takes longer than
// another thread needs for many small datapoints. On a busy machine that thread gets the processor.
template <typename Condition>
void watch_briefly(const Condition& is_done) {
  constexpr int64_t kMomentNs = 20'000;
  for (const int64_t end = now_ns() + kMomentNs; !is_done() && now_ns() < end;) {
    std::this_thread::yield();
  }
}

}  // namespace

class WorkAhead::State {
 public:
  State(std::shared_ptr<DataFlow> flow, Work work, WorkAheadOptions options, StatsPtr stats,
        int64_t first_number)
      : flow_(std::move(flow)),
        work_(std::move(work)),
        options_(std::move(options)),
        stats_(std::move(stats)),
        first_number_(first_number),
        few_(options_.capacity - std::max<int64_t>(options_.capacity / 4, 1)),
        slots_(options_.capacity),
        reuse_(options_.name, options_.capacity + 1) {}

  // The body of every thread.
  void run() {
    single_threaded_ops();
    const ThreadOfStage thread_of_stage(*stats_);
    while (make_one()) {
    }
  }

  std::optional<DataPoint> next() {
    while (true) {
      if (taken_at_ == taken_.size() && !take_ready()) return std::nullopt;
      Slot slot = std::move(taken_[taken_at_++]);
      hand_out();
      if (slot.failure) throw_failure(slot);
      if (slot.point) return std::move(slot.point);
    }
  }

  // Threads look again whether they are to stop.
  void wake() {
    const std::lock_guard lock(mutex_);
    has_room_.notify_all();
  }

 private:
  struct Slot {
    bool is_ready = false;
    bool is_from_flow = false;  // whether the flow threw, not the work
    int64_t number = 0;
    std::optional<DataPoint> point = {};
    std::exception_ptr failure = {};
  };

  // Reads a datapoint and works on it; false when there is no more to do.
  bool make_one() {
    Slot slot;
    {
      const std::lock_guard turn(reading_);
      if (has_ended_ || !wait_for_room()) return false;
      slot.number = read_;
      const SampleScope sample(slot.number);
      if (!read(slot)) return false;
      ++read_;
    }
    if (work_ && slot.point) {
      const SampleScope sample(slot.number);
      const BusyScope busy(stats_->busy_ns);
      try {
        slot.point = work_(std::move(*slot.point), first_number_ + slot.number);
      } catch (...) {
        slot.point.reset();
        slot.failure = std::current_exception();
      }
    }
    deliver(std::move(slot));
    return true;
  }

  // Takes the next datapoint, or what the flow throws; false at the end of the pass.
  bool read(Slot& slot) {
    try {
      slot.point = flow_->next();
      if (slot.point) reuse_.look(*slot.point);
    } catch (const Abandoned&) {
      has_ended_ = true;
      return false;
    } catch (...) {
      slot.point.reset();
      slot.failure = std::current_exception();
      slot.is_from_flow = true;
    }
    if (slot.point) return true;
    has_ended_ = true;
    const std::lock_guard lock(mutex_);
    total_ = read_ + (slot.failure ? 1 : 0);
    has_news_.notify_all();
    return static_cast<bool>(slot.failure);
  }

  int64_t occupied() const { return read_ - handed_out_.load(); }

  // Once all places are taken, waits until a quarter is free: to be woken up for each would cost
  // more than the work. Returns whether the work goes on.
  bool wait_for_room() {
    if (occupied() < options_.capacity) return !stop_requested();
    const int64_t start = now_ns();
    watch_briefly([&] { return occupied() <= few_ || stop_requested(); });
    std::unique_lock lock(mutex_);
    is_waiting_for_room_ = true;
    while (!stop_requested() && occupied() > few_) has_room_.wait_for(lock, kPatience);
    is_waiting_for_room_ = false;
    stats_->downstream_wait_ns.fetch_add(now_ns() - start, std::memory_order_relaxed);
    return !stop_requested();
  }

  void deliver(Slot slot) {
    slot.is_ready = true;
    const std::lock_guard lock(mutex_);
    const int64_t place = options_.ordered ? slot.number : completed_;
    ++completed_;
    slots_[place % options_.capacity] = std::move(slot);
    if (place != next_place_) return;
    head_is_ready_ = true;
    if (is_waiting_for_data_) has_news_.notify_all();
  }

  // Moves all results that are due to the consumer's side, so that it takes the lock once for many.
  // False at the end.
  bool take_ready() {
    taken_.clear();
    taken_at_ = 0;
    std::unique_lock lock(mutex_);
    if (!head().is_ready && next_place_ < total_) wait_for_data(lock);
    while (next_place_ < total_ && head().is_ready) {
      taken_.push_back(std::exchange(head(), Slot()));
      ++next_place_;
      if (std::ssize(taken_) == options_.capacity) break;
    }
    head_is_ready_ = head().is_ready;
    stats_->count_depth(std::ssize(taken_));
    return !taken_.empty();
  }

  void wait_for_data(std::unique_lock<std::mutex>& lock) {
    const int64_t start = now_ns();
    lock.unlock();
    watch_briefly([&] { return head_is_ready_.load(); });
    lock.lock();
    is_waiting_for_data_ = true;
    while (!head().is_ready && next_place_ < total_) {
      if (has_news_.wait_for(lock, kPatience) == std::cv_status::no_timeout) continue;
      if (const int signal = signal_to_give_up()) throw Interrupted(signal);
      if (stop_requested()) throw Abandoned();
    }
    is_waiting_for_data_ = false;
    count_wait_for_data(now_ns() - start);
  }

  Slot& head() { return slots_[next_place_ % options_.capacity]; }

  void hand_out() {
    handed_out_.fetch_add(1);
    if (!is_waiting_for_room_.load() || occupied() > few_) return;
    const std::lock_guard lock(mutex_);
    has_room_.notify_one();
  }

  [[noreturn]] void throw_failure(const Slot& slot) const {
    const int64_t number = first_number_ + slot.number;
    if (!slot.is_from_flow) {
      throw_named(options_.name, fmt::format("datapoint {} of the pass", number), slot.failure);
    }
    try {
      std::rethrow_exception(slot.failure);
    } catch (const Error&) {
      throw;  // says itself where it comes from
    } catch (...) {
      throw_named(options_.name, fmt::format("reading datapoint {} of the pass", number),
                  slot.failure);
    }
  }

  const std::shared_ptr<DataFlow> flow_;
  const Work work_;
  const WorkAheadOptions options_;
  const StatsPtr stats_;
  const int64_t first_number_;
  const int64_t few_;  // places taken when work goes on that had to wait

  std::mutex reading_;             // whoever has it may use the flow and what follows
  std::atomic<int64_t> read_ = 0;  // written with `reading_` alone
  bool has_ended_ = false;

  std::atomic<int64_t> handed_out_ = 0;
  std::atomic<bool> is_waiting_for_room_ = false;

  std::mutex mutex_;  // for what follows
  std::condition_variable has_room_;
  std::condition_variable has_news_;  // a result that is due, or the end
  std::vector<Slot> slots_;           // a ring
  int64_t completed_ = 0;
  int64_t next_place_ = 0;                               // of the result that is due
  std::atomic<bool> head_is_ready_ = false;              // that result, to be seen without the lock
  int64_t total_ = std::numeric_limits<int64_t>::max();  // how many results there will be
  bool is_waiting_for_data_ = false;

  ReuseWatch reuse_;  // with `reading_`

  std::vector<Slot> taken_;  // the consumer's alone
  size_t taken_at_ = 0;
};

WorkAhead::WorkAhead(std::shared_ptr<DataFlow> flow, Work work, WorkAheadOptions options,
                     StatsPtr stats, int64_t first_number)
    : state_(std::make_shared<State>(std::move(flow), std::move(work), options, std::move(stats),
                                     first_number)),
      threads_(options.name) {
  for (int64_t i = 0; i < options.threads; ++i) {
    threads_.start([state = state_] { state->run(); });
  }
}

WorkAhead::~WorkAhead() {
  threads_.request_stop();
  state_->wake();
}

std::optional<DataPoint> WorkAhead::next() { return state_->next(); }

WorkAheadFlow::WorkAheadFlow(DataFlowPtr flow, MakeWork make_work, bool keeps_all,
                             WorkAheadOptions options, StatsPtr stats)
    : flow_(std::move(flow)),
      make_work_(std::move(make_work)),
      keeps_all_(keeps_all),
      options_(std::move(options)),
      stats_(std::move(stats)),
      size_(keeps_all ? flow_->size() : std::nullopt),
      is_endless_(flow_->is_endless()) {
  TP_CHECK(options_.threads > 0, options_.name, "the number of threads must be positive, got {}.",
           options_.threads);
  TP_CHECK(options_.capacity > 0, options_.name,
           "the number of datapoints made ahead must be positive, got {}.", options_.capacity);
}

void WorkAheadFlow::start(int64_t pass) {
  threads_.reset();
  flow_->start(pass);
  pass_ = pass;
  skipped_ = 0;
  is_at_end_ = false;
}

std::optional<DataPoint> WorkAheadFlow::next() {
  if (is_at_end_) return std::nullopt;
  if (!threads_) {
    // Its time belongs to no datapoint: as the work of a sampled one it would count many times.
    const int64_t start = now_ns();
    threads_ = std::make_unique<WorkAhead>(
        flow_, make_work_ ? make_work_(pass_) : WorkAhead::Work(), options_, stats_, skipped_);
    count_wait_for_data(now_ns() - start);
  }
  auto point = threads_->next();
  if (!point) {
    threads_.reset();
    is_at_end_ = true;
  }
  return point;
}

int64_t WorkAheadFlow::skip(int64_t count) {
  if (threads_ || is_at_end_ || !keeps_all_) return DataFlow::skip(count);
  const int64_t skipped = flow_->skip(count);
  skipped_ += skipped;
  return skipped;
}

StatsPtr stats_for(const WorkAheadOptions& options) {
  return std::make_shared<StageStats>(options.name, options.threads, options.capacity);
}

void throw_named(const std::string& stage, const std::string& where, std::exception_ptr failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const StopTraining&) {
    throw;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    std::throw_with_nested(make_error(stage, "{}: {}", where, describe(error)));
  }
}

}  // namespace tensorpack::detail
