// SPDX-License-Identifier: Apache-2.0
// Where the time of a pipeline goes.
//
// Flows joined with `|` are measured all the time: every 16th datapoint is timed on its way through
// the stages, so that the cost cannot be seen.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/detail/part.h"
#include "tensorpack/dataflow/stage_report.h"

namespace tensorpack {

/// What one stage did so far. Counts only grow; any thread may read them.
class StageStats {
 public:
  StageStats(std::string name, int64_t threads, int64_t capacity)
      : name(std::move(name)), threads(threads), capacity(capacity) {}

  const std::string name;
  const int64_t threads;   ///< of its own; 0 for a stage that runs on the thread that asks it
  const int64_t capacity;  ///< of its queue; 0 for none

  /// What tells the data that the stage gives from that of another program: "Shuffle(100)", without
  /// threads and queues. Empty for a stage that hands on what it gets.
  std::string data = {};
  std::optional<int64_t> data_size = {};  ///< datapoints in a pass, if that is known

  std::atomic<int64_t> busy_ns = 0;
  std::atomic<int64_t> upstream_wait_ns = 0;    ///< its threads had nothing to work on
  std::atomic<int64_t> downstream_wait_ns = 0;  ///< its threads had no room for what they made
  std::atomic<int64_t> depth_sum = 0;           ///< of the queue, whenever it was looked at
  std::atomic<int64_t> depth_count = 0;
  /// Datapoints at the end of passes that made no whole batch, or no whole round of shard().
  std::atomic<int64_t> left_out = 0;
  int64_t leaves_out = 0;  ///< the same of every pass, where shard() knows it before

  std::vector<std::shared_ptr<const StageStats>> inputs;  ///< where its datapoints come from
  detail::Part part;                                      ///< set before it is used

  void count_depth(int64_t depth) {
    depth_sum.fetch_add(depth, std::memory_order_relaxed);
    depth_count.fetch_add(1, std::memory_order_relaxed);
  }
};

/// What the stages of a pipeline did, from its source to its end. Of a flow that was never piped
/// there is nothing to tell.
std::vector<StageReport> stage_report(const DataFlow& flow);
std::vector<StageReport> stage_report(const StageStats& last);

/// The report as a table.
std::string format_stages(const std::vector<StageReport>& stages);

/// How many datapoints its stages have left out at the end of passes so far.
int64_t datapoints_left_out(const StageStats& last);

/// What decides the data that a pipeline gives, a line for each stage from its source to its end,
/// as far as the stages know it: names, and numbers such as the size of a shuffle buffer. Functions
/// of map() and seeds are not looked into. The lines do not depend on the number of ranks, threads
/// or the sizes of queues.
std::vector<std::string> describe_data(const StageStats& last);

/// How many datapoints a pass has behind each stage that knows it. With shard() they depend on the
/// number of ranks.
std::vector<std::string> describe_data_sizes(const StageStats& last);

/// The stages of a name, such as "Shard".
std::vector<const StageStats*> stages_named(const StageStats& last, const std::string& name);

/// The stage to make faster, or to give more threads. Stages that share a thread share its time:
/// the busiest thread is found first, then the stage that takes most of it.
std::optional<StageReport> slowest_stage(const StageStats& last);

namespace detail {

using StatsPtr = std::shared_ptr<StageStats>;

/// Implemented by flows that count something themselves, such as those that have threads: their
/// part of the statistics.
class ThreadedStage {
 public:
  virtual ~ThreadedStage() = default;
  virtual StatsPtr stats() const = 0;
};

/// Implemented by flows of which the class alone does not say what they give.
class DescribedStage {
 public:
  virtual ~DescribedStage() = default;
  /// The options that decide it, as in a call: "100"; nullopt for a flow that gives what it gets,
  /// or this rank's share of it.
  virtual std::optional<std::string> data_options() const = 0;
};

/// The statistics of a flow that is metered; null for others.
std::shared_ptr<const StageStats> stats_of(const DataFlow& flow);

/// One in so many datapoints is timed.
inline constexpr int64_t kSampleEvery = 16;

/// Times what happens on this thread while it lives, if `number` is one of the sample.
class [[nodiscard]] SampleScope {
 public:
  explicit SampleScope(int64_t number);
  ~SampleScope();
  SampleScope(const SampleScope&) = delete;
  SampleScope& operator=(const SampleScope&) = delete;

 private:
  bool outer_;
};

/// Adds the time of its scope, less what was counted elsewhere within it, to a counter; only in a
/// SampleScope.
class [[nodiscard]] BusyScope {
 public:
  explicit BusyScope(std::atomic<int64_t>& counter);
  ~BusyScope();
  BusyScope(const BusyScope&) = delete;
  BusyScope& operator=(const BusyScope&) = delete;

 private:
  std::atomic<int64_t>* counter_;  // null outside of samples
  int64_t start_ = 0;
  int64_t outer_elsewhere_ = 0;
};

/// While it lives, the calling thread works for the stage with these statistics.
class [[nodiscard]] ThreadOfStage {
 public:
  explicit ThreadOfStage(StageStats& stats);
  ~ThreadOfStage();
  ThreadOfStage(const ThreadOfStage&) = delete;
  ThreadOfStage& operator=(const ThreadOfStage&) = delete;

 private:
  StageStats* outer_;
};

/// The calling thread waited for data: nobody was busy, and its stage waited for upstream.
void count_wait_for_data(int64_t nanoseconds);

int64_t now_ns();

}  // namespace detail
}  // namespace tensorpack
