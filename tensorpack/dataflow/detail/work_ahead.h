// SPDX-License-Identifier: Apache-2.0
// Threads that take datapoints from a flow, work on them and keep the results until they are asked
// for.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/stage_stats.h"
#include "tensorpack/utils/abandonable_threads.h"

namespace tensorpack::detail {

struct WorkAheadOptions {
  std::string name = {};  ///< of the stage, for errors, threads and reports
  int64_t threads = 1;
  int64_t capacity = 1;  ///< most datapoints between the flow and the consumer
  bool ordered = true;   ///< whether results come in the order of the flow
};

/// One run of the threads, from its first datapoint to the end of the pass.
///
/// Threads take turns at reading the flow, so that it needs to know nothing of them. A datapoint
/// occupies its place from before it is read until it is handed out: that bounds the memory.
class WorkAhead {
 public:
  /// What is made of datapoint number `number`; nullopt drops it.
  using Work = std::function<std::optional<DataPoint>(DataPoint point, int64_t number)>;

  /// The threads start at once. Without `work` datapoints are handed on as they are.
  WorkAhead(std::shared_ptr<DataFlow> flow, Work work, WorkAheadOptions options, StatsPtr stats,
            int64_t first_number);

  /// Ends the threads.
  ~WorkAhead();
  WorkAhead(const WorkAhead&) = delete;
  WorkAhead& operator=(const WorkAhead&) = delete;

  /// The next result; nullopt at the end.
  ///
  /// What a thread threw is thrown here in its place, as an Error that names the stage and holds
  /// the original nested. What the work threw concerns its datapoint alone: the next call goes on
  /// after it. What the flow threw ends the pass.
  std::optional<DataPoint> next();

 private:
  class State;

  std::shared_ptr<State> state_;  // shared with the threads
  AbandonableThreads threads_;
};

/// A flow whose datapoints come from threads: it starts them when it is first asked in a pass.
class WorkAheadFlow final : public DataFlow, public ThreadedStage, public DescribedStage {
 public:
  /// `work` is made anew for every pass. `keeps_all` says that it drops nothing, and need not be
  /// done for what is skipped.
  using MakeWork = std::function<WorkAhead::Work(int64_t pass)>;

  WorkAheadFlow(DataFlowPtr flow, MakeWork make_work, bool keeps_all, WorkAheadOptions options,
                StatsPtr stats);

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;
  int64_t skip(int64_t count) override;
  std::optional<int64_t> size() const override { return size_; }
  bool is_endless() const override { return is_endless_; }
  StatsPtr stats() const override { return stats_; }
  std::optional<std::string> data_options() const override {
    return make_work_ ? std::optional("") : std::nullopt;
  }

 private:
  std::shared_ptr<DataFlow> flow_;  // shared with threads that had to be left behind
  MakeWork make_work_;
  bool keeps_all_;
  WorkAheadOptions options_;
  StatsPtr stats_;
  // Asked once: later the flow belongs to the threads.
  std::optional<int64_t> size_;
  bool is_endless_;
  int64_t pass_ = 0;
  int64_t skipped_ = 0;
  bool is_at_end_ = false;
  std::unique_ptr<WorkAhead> threads_;
};

/// The statistics of a stage with threads.
StatsPtr stats_for(const WorkAheadOptions& options);

/// Throws `failure` as an Error that begins with `[stage]` and holds it nested. What is no
/// std::exception, and what ends a training on purpose, is thrown as it is.
[[noreturn]] void throw_named(const std::string& stage, const std::string& where,
                              std::exception_ptr failure);

}  // namespace tensorpack::detail
