// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/graph_profiler.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tensorpack/callbacks/first_program.h"
#include "tensorpack/monitors/layer_time.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

struct Total {
  std::string name = {};
  double forward = 0;
  double backward = 0;
  int64_t count = 0;
  double seconds() const { return forward + backward; }
};

// Sums over operators with the same key, the longest first.
template <typename Key>
std::vector<Total> sum_up(const std::vector<OperatorTime>& times, const Key& key) {
  std::map<std::string, Total> by_key;
  for (const OperatorTime& time : times) {
    Total& total = by_key[key(time)];
    (time.origin.is_backward ? total.backward : total.forward) += time.seconds;
    ++total.count;
  }
  std::vector<Total> totals;
  for (auto& [name, total] : by_key) {
    totals.push_back(total);
    totals.back().name = name;
  }
  std::stable_sort(totals.begin(), totals.end(),
                   [](const Total& a, const Total& b) { return a.seconds() > b.seconds(); });
  return totals;
}

std::string layer_of(const OperatorTime& time) {
  return time.origin.layer.empty() ? "(outside layers)" : time.origin.layer;
}

std::string table(const std::string& title, const std::vector<Total>& totals, double all,
                  int64_t shown) {
  std::string text = fmt::format("  {:<40} {:>9} {:>6} {:>12} {:>12} {:>6}\n", title, "ms", "%",
                                 "forward ms", "backward ms", "calls");
  const auto count = std::min(totals.size(), static_cast<size_t>(shown));
  for (size_t i = 0; i < count; ++i) {
    const Total& total = totals[i];
    text += fmt::format("  {:<40} {:>9.3f} {:>6.1f} {:>12.3f} {:>12.3f} {:>6}\n", total.name,
                        total.seconds() * 1e3, all > 0 ? 100 * total.seconds() / all : 0,
                        total.forward * 1e3, total.backward * 1e3, total.count);
  }
  if (count < totals.size()) text += fmt::format("  and {} more\n", totals.size() - count);
  return text;
}

std::vector<LayerTime> layer_times(const std::vector<OperatorTime>& times) {
  std::map<std::string, LayerTime> layers;
  for (const OperatorTime& time : times) {
    LayerTime& layer = layers[time.origin.layer];
    layer.layer = time.origin.layer;
    (time.origin.is_backward ? layer.backward : layer.forward) += time.seconds;
    layer.bytes += time.bytes;
  }
  std::vector<LayerTime> list;
  for (const auto& [name, layer] : layers) list.push_back(layer);
  return list;
}

}  // namespace

std::string detail::describe_profile(const std::vector<OperatorTime>& times, int64_t shown) {
  double all = 0;
  for (const OperatorTime& time : times) all += time.seconds;
  return table("layer", sum_up(times, layer_of), all, shown) +
         table("operator", sum_up(times, [](const OperatorTime& time) { return time.origin.op; }),
               all, shown);
}

std::string detail::to_chrome_trace(const std::vector<OperatorTime>& times) {
  nlohmann::json events = nlohmann::json::array();
  for (const OperatorTime& time : times) {
    events.push_back({{"name", time.origin.op},
                      {"cat", time.origin.is_backward ? "backward" : "forward"},
                      {"ph", "X"},
                      {"ts", time.start * 1e6},
                      {"dur", time.seconds * 1e6},
                      {"pid", 0},
                      {"tid", time.origin.is_backward ? 1 : 0},
                      {"args", {{"layer", time.origin.layer}, {"bytes", time.bytes}}}});
  }
  return nlohmann::json{{"traceEvents", events}, {"displayTimeUnit", "ms"}}.dump();
}

GraphProfiler::GraphProfiler(GraphProfilerOptions options) : options_(options) {
  TP_CHECK(options_.first_step > 0 && options_.every_k_steps >= 0 && options_.repetitions > 0 &&
               options_.shown > 0,
           "GraphProfiler",
           "first_step {}, repetitions {} and shown {} must be positive, and every_k_steps {} must "
           "not be negative.",
           options_.first_step, options_.repetitions, options_.shown, options_.every_k_steps);
}

void GraphProfiler::before_train() {
  steps_before_ = global_step();
  next_step_ = steps_before_ + options_.first_step;
  has_looked_ = false;
}

RunArgs GraphProfiler::before_run(RunContext& context) {
  const Op op = first_program(context.op());
  is_due_ = false;
  if (!op || (trainer().train_op() && context.op() != trainer().train_op())) return {};
  const int64_t step = global_step() + 1;
  if (!next_step_ || step < *next_step_) return {};
  is_due_ = has_looked_ = true;
  next_step_.reset();
  if (options_.every_k_steps > 0) next_step_ = step + options_.every_k_steps;
  RunArgs args;
  for (const TensorSpec& input : op.inputs()) args.fetches.push_back(input.name);
  return args;
}

void GraphProfiler::after_run(RunContext& context, const FetchedValues& values) {
  if (!is_due_) return;
  const Op op = first_program(context.op());
  std::vector<at::Tensor> inputs;
  for (const at::Tensor& value : values) inputs.push_back(value.to(op.device()));
  try {
    times_ = time_operators(trainer().sess(), op, inputs, options_.repetitions);
  } catch (const std::exception& error) {
    logging::warning("[GraphProfiler] '{}' cannot be run operator by operator: {}", op.name(),
                     tensorpack::describe(error));
    return;
  }
  report();
}

void GraphProfiler::after_train() {
  const int64_t steps = global_step() - steps_before_;
  if (has_looked_ || steps <= 0) return;
  logging::warning(
      "[GraphProfiler] no step was looked into: it was enabled in none from step {} on, and the "
      "training made {}. Set .first_step to a step that is made.",
      options_.first_step, steps);
}

void GraphProfiler::report() const {
  logging::info("Profile of a step at global_step {}:\n{}", global_step(),
                detail::describe_profile(times_, options_.shown));
  trainer().monitors().put_profile(layer_times(times_));
  const auto dir = get_logger_dir();
  if (!dir) return;
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file_atomically(*dir / name, text);
    logging::info("Written: '{}'.", (*dir / name).string());
  };
  if (options_.dump_tracing) {
    write(fmt::format("chrome-trace-{}.json", global_step()), detail::to_chrome_trace(times_));
  }
  if (options_.dump_table) {
    const auto all = static_cast<int64_t>(times_.size());
    write(fmt::format("profile-{}.txt", global_step()),
          detail::describe_profile(times_, std::max<int64_t>(1, all)));
  }
}

}  // namespace tensorpack
