// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/stage_stats.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <set>
#include <typeinfo>
#include <utility>

#include "tensorpack/dataflow/detail/row_source.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

thread_local bool is_sampling = false;
thread_local int64_t elsewhere_ns = 0;  // within the innermost BusyScope, counted by others
thread_local StageStats* stage_of_thread = nullptr;

// "tensorpack::(anonymous namespace)::Batch" is called Batch.
std::string class_name(const DataFlow& flow) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(typeid(flow).name(), nullptr, nullptr, &status), &std::free);
  std::string name = status == 0 ? text.get() : typeid(flow).name();
  const size_t arguments = name.find('<');
  const size_t scope = name.substr(0, arguments).rfind("::");
  return scope == std::string::npos ? name : name.substr(scope + 2);
}

// Stands behind every flow of a pipe and takes its time.
class Metered final : public DataFlow, public detail::RowSource {
 public:
  Metered(DataFlowPtr flow, detail::StatsPtr stats)
      : flow_(std::move(flow)), rows_(detail::row_source_of(*flow_)), stats_(std::move(stats)) {}

  void start(int64_t pass) override { flow_->start(pass); }

  std::optional<DataPoint> next() override {
    if (!is_sampling) return flow_->next();
    const detail::BusyScope busy(stats_->busy_ns);
    return flow_->next();
  }

  bool has_rows() const override { return rows_ != nullptr; }

  std::optional<int64_t> next_row() override {
    if (!is_sampling) return rows_->next_row();
    const detail::BusyScope busy(stats_->busy_ns);
    return rows_->next_row();
  }

  DataPoint row(int64_t number) const override {
    const detail::BusyScope busy(stats_->busy_ns);
    return rows_->row(number);
  }

  DataPoint stack_rows(const std::vector<int64_t>& numbers) const override {
    const detail::BusyScope busy(stats_->busy_ns);
    return rows_->stack_rows(numbers);
  }

  int64_t skip(int64_t count) override { return flow_->skip(count); }
  std::optional<int64_t> size() const override { return flow_->size(); }
  bool is_endless() const override { return flow_->is_endless(); }

  const detail::StatsPtr& stats() const { return stats_; }

 private:
  DataFlowPtr flow_;
  detail::RowSource* rows_;  // the flow itself, if it has rows
  detail::StatsPtr stats_;
};

// Of what it yields, on whatever thread and however many there are.
std::string data_of(const DataFlow& flow, const std::string& name) {
  const std::string without_types = name.substr(0, name.find('<'));  // lambdas are numbered in them
  const auto* described = dynamic_cast<const detail::DescribedStage*>(&flow);
  if (described == nullptr) return without_types;
  const auto options = described->data_options();
  if (!options) return "";
  return options->empty() ? without_types : fmt::format("{}({})", without_types, *options);
}

double seconds(const std::atomic<int64_t>& nanoseconds) {
  return static_cast<double>(nanoseconds.load(std::memory_order_relaxed)) / 1e9;
}

StageReport report_of(const StageStats& stats) {
  const int64_t looks = stats.depth_count.load(std::memory_order_relaxed);
  const auto depth = static_cast<double>(stats.depth_sum.load(std::memory_order_relaxed));
  return {.name = stats.name,
          .threads = stats.threads,
          .busy_seconds = seconds(stats.busy_ns) * static_cast<double>(detail::kSampleEvery),
          .upstream_wait_seconds = seconds(stats.upstream_wait_ns),
          .downstream_wait_seconds = seconds(stats.downstream_wait_ns),
          .queue_depth = looks > 0 ? depth / static_cast<double>(looks) : 0,
          .capacity = stats.capacity};
}

// Calls `visit` for every stage, sources first, with the number of the thread that it runs on.
void walk(const StageStats& stage, int thread, int& threads, std::set<const StageStats*>& seen,
          const std::function<void(const StageStats&, int)>& visit) {
  if (!seen.insert(&stage).second) return;
  for (const auto& input : stage.inputs) {
    walk(*input, stage.threads > 0 ? ++threads : thread, threads, seen, visit);
  }
  // What a stage does on threads of its own shares none with its neighbours.
  visit(stage, stage.threads > 0 ? ++threads : thread);
}

void walk(const StageStats& last, const std::function<void(const StageStats&, int)>& visit) {
  int threads = 0;
  std::set<const StageStats*> seen;
  walk(last, 0, threads, seen, visit);
}

}  // namespace

namespace detail {

StatsPtr meter(DataFlowPtr& flow, std::vector<StatsPtr> inputs) {
  TP_CHECK(flow != nullptr, "DataFlow", "a flow of the pipe is null. Pass a flow.");
  if (const auto* metered = dynamic_cast<const Metered*>(flow.get())) return metered->stats();
  StatsPtr stats;
  if (const auto* threaded = dynamic_cast<const ThreadedStage*>(flow.get())) {
    stats = threaded->stats();
  } else {
    stats = std::make_shared<StageStats>(class_name(*flow), 0, 0);
  }
  stats->data = data_of(*flow, stats->name);
  stats->data_size = flow->size();
  for (StatsPtr& input : inputs) {
    if (input->part.size > stats->part.size) stats->part = input->part;
    stats->inputs.push_back(std::move(input));
  }
  flow = std::make_unique<Metered>(std::move(flow), stats);
  return stats;
}

RowSource* row_source_of(DataFlow& flow) {
  auto* rows = dynamic_cast<RowSource*>(&flow);
  return rows && rows->has_rows() ? rows : nullptr;
}

std::shared_ptr<const StageStats> stats_of(const DataFlow& flow) {
  const auto* metered = dynamic_cast<const Metered*>(&flow);
  return metered ? metered->stats() : nullptr;
}

Part part_of(const DataFlow& flow) {
  if (const auto stats = stats_of(flow)) return stats->part;
  const auto* counts_itself = dynamic_cast<const ThreadedStage*>(&flow);
  return counts_itself != nullptr ? counts_itself->stats()->part : Part();
}

SampleScope::SampleScope(int64_t number)
    : outer_(std::exchange(is_sampling, number % kSampleEvery == 0)) {}

SampleScope::~SampleScope() { is_sampling = outer_; }

BusyScope::BusyScope(std::atomic<int64_t>& counter) : counter_(is_sampling ? &counter : nullptr) {
  if (!counter_) return;
  outer_elsewhere_ = std::exchange(elsewhere_ns, 0);
  start_ = now_ns();
}

BusyScope::~BusyScope() {
  if (!counter_) return;
  const int64_t elapsed = now_ns() - start_;
  counter_->fetch_add(std::max<int64_t>(elapsed - elsewhere_ns, 0), std::memory_order_relaxed);
  elsewhere_ns = outer_elsewhere_ + elapsed;
}

ThreadOfStage::ThreadOfStage(StageStats& stats) : outer_(std::exchange(stage_of_thread, &stats)) {}

ThreadOfStage::~ThreadOfStage() { stage_of_thread = outer_; }

void count_wait_for_data(int64_t nanoseconds) {
  elsewhere_ns += nanoseconds;
  if (stage_of_thread) {
    stage_of_thread->upstream_wait_ns.fetch_add(nanoseconds, std::memory_order_relaxed);
  }
}

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

}  // namespace detail

std::vector<StageReport> stage_report(const StageStats& last) {
  std::vector<StageReport> stages;
  walk(last, [&](const StageStats& stage, int) { stages.push_back(report_of(stage)); });
  return stages;
}

std::vector<StageReport> stage_report(const DataFlow& flow) {
  const auto stats = detail::stats_of(flow);
  return stats ? stage_report(*stats) : std::vector<StageReport>();
}

std::string format_stages(const std::vector<StageReport>& stages) {
  std::string table = fmt::format("{:<20} {:>7} {:>9} {:>14} {:>16} {:>11}", "stage", "threads",
                                  "busy (s)", "no input (s)", "no room (s)", "queue");
  for (const StageReport& stage : stages) {
    const std::string queue =
        stage.capacity > 0 ? fmt::format("{:.0f}/{}", stage.queue_depth, stage.capacity) : "";
    table += fmt::format("\n{:<20} {:>7} {:>9.3f} {:>14.3f} {:>16.3f} {:>11}", stage.name,
                         stage.threads > 0 ? std::to_string(stage.threads) : "", stage.busy_seconds,
                         stage.upstream_wait_seconds, stage.downstream_wait_seconds, queue);
  }
  return table;
}

int64_t datapoints_left_out(const StageStats& last) {
  int64_t count = 0;
  walk(last, [&](const StageStats& stage, int) { count += stage.left_out; });
  return count;
}

std::vector<std::string> describe_data(const StageStats& last) {
  std::vector<std::string> lines;
  walk(last, [&](const StageStats& stage, int) {
    if (!stage.data.empty()) lines.push_back(stage.data);
  });
  return lines;
}

std::vector<std::string> describe_data_sizes(const StageStats& last) {
  std::vector<std::string> lines;
  walk(last, [&](const StageStats& stage, int) {
    if (stage.data.empty() || !stage.data_size) return;
    const std::string name = stage.data.substr(0, stage.data.find('('));
    lines.push_back(fmt::format("{}: {}", name, counted(*stage.data_size, "datapoint")));
  });
  return lines;
}

std::vector<const StageStats*> stages_named(const StageStats& last, const std::string& name) {
  std::vector<const StageStats*> stages;
  walk(last, [&](const StageStats& stage, int) {
    if (stage.name == name) stages.push_back(&stage);
  });
  return stages;
}

std::optional<StageReport> slowest_stage(const StageStats& last) {
  struct Thread {
    double busy = 0;
    StageReport slowest = {};
  };
  std::map<int, Thread> threads;
  walk(last, [&](const StageStats& stage, int number) {
    const StageReport report = report_of(stage);
    Thread& thread = threads[number];
    thread.busy += report.busy_seconds / static_cast<double>(std::max<int64_t>(stage.threads, 1));
    if (thread.slowest.name.empty() || report.busy_seconds > thread.slowest.busy_seconds) {
      thread.slowest = report;
    }
  });
  const auto busiest =
      std::max_element(threads.begin(), threads.end(),
                       [](const auto& a, const auto& b) { return a.second.busy < b.second.busy; });
  if (busiest == threads.end() || busiest->second.busy == 0) return std::nullopt;
  return busiest->second.slowest;
}

}  // namespace tensorpack
