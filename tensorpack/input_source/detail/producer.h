// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/abandonable_threads.h"
#include "tensorpack/utils/bounded_queue.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/signals.h"
#include "tensorpack/utils/stop_flag.h"
#include "tensorpack/utils/thread.h"

namespace tensorpack::detail {

/// One run of a thread that makes things ahead of their use, from a start to its end. Another start
/// takes another producer, so that nothing of the old one can reach the new queue.
///
/// When a signal is to end the process (see SignalWatch) next() throws Interrupted, and the thread
/// may be left behind (see AbandonableThreads).
template <typename T>
class Producer {
 public:
  /// `start` is called once, then `make` until it gives nothing; both on the thread. What they use
  /// they should own, for the case that the thread is left behind.
  struct Work {
    std::string thread_name = {};
    size_t capacity = 1;
    std::string starting = {};               ///< what to say if `start` takes long
    bool single_threaded_ops = true;         ///< as others work meanwhile
    std::shared_ptr<StageStats> stats = {};  ///< where to count; may be null
    std::function<void()> start = {};
    std::function<std::optional<T>()> make = {};
  };

  explicit Producer(Work work)
      : state_(std::make_shared<State>(work.capacity)),
        stats_(work.stats),
        starting_(work.starting),
        thread_(work.thread_name) {
    thread_.start([state = state_, work = std::move(work)] { produce(*state, work); });
  }

  ~Producer() { end(); }
  Producer(const Producer&) = delete;
  Producer& operator=(const Producer&) = delete;

  /// nullopt at the end. What `work` threw is thrown here, after what it had made before.
  std::optional<T> next() {
    if (stats_) stats_->count_depth(static_cast<int64_t>(size()));
    std::optional<T> item = state_->queue.pop_for(kPatience);
    for (auto waited = kPatience; !item && !state_->queue.finished(); waited += kPatience) {
      if (const int signal = signal_to_give_up()) throw Interrupted(signal);
      if (stop_requested()) return std::nullopt;  // by the owner of the thread that asks
      if (waited == kPatienceForStart && !state_->has_started) logging::info("{}", starting_);
      item = state_->queue.pop_for(kPatience);
    }
    // Set before the queue was closed, so what came before the failure has been delivered.
    if (!item && state_->failure) std::rethrow_exception(state_->failure);
    return item;
  }

  /// Ends the thread. False if it was left behind, and may still use what it used.
  bool end() {
    state_->queue.close();
    return thread_.end();
  }

  size_t size() const { return state_->queue.size(); }

 private:
  static constexpr std::chrono::milliseconds kPatience{200};
  static constexpr std::chrono::milliseconds kPatienceForStart{5000};

  // What the thread and the consumer share.
  struct State {
    explicit State(size_t capacity) : queue(capacity) {}
    BoundedQueue<T> queue;
    std::atomic<bool> has_started = false;
    std::exception_ptr failure;
  };

  static void produce(State& state, const Work& work) {
    if (work.single_threaded_ops) single_threaded_ops();
    std::optional<ThreadOfStage> thread_of_stage;
    if (work.stats) thread_of_stage.emplace(*work.stats);
    try {
      work.start();
      state.has_started = true;
      for (int64_t number = 0;; ++number) {
        const SampleScope sample(number);
        auto item = work.make();
        if (!item || !push(state.queue, std::move(*item), work.stats.get())) break;
      }
    } catch (...) {
      state.failure = std::current_exception();
    }
    state.queue.close();
  }

  static bool push(BoundedQueue<T>& queue, T&& item, StageStats* stats) {
    if (!stats || queue.size() < queue.capacity()) return queue.push(std::move(item));
    const int64_t start = now_ns();
    const bool is_pushed = queue.push(std::move(item));
    stats->downstream_wait_ns.fetch_add(now_ns() - start, std::memory_order_relaxed);
    return is_pushed;
  }

  std::shared_ptr<State> state_;
  std::shared_ptr<StageStats> stats_;
  std::string starting_;
  AbandonableThreads thread_;
};

}  // namespace tensorpack::detail
