// SPDX-License-Identifier: Apache-2.0
#include "benchmarks/bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/error.h"

namespace tensorpack::bench {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  auto middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// How many steps fill `min_seconds`; finding out warms the code up.
int64_t steps_for(const Timed& timed, double min_seconds) {
  constexpr int64_t kMost = int64_t{1} << 40;
  int64_t steps = 1;
  while (steps < kMost) {
    double seconds = timed.seconds(steps);
    if (seconds >= min_seconds) break;
    // Grow by at most 10 at once: the first steps are slower than those to come.
    double wanted = seconds > 0 ? 1.1 * min_seconds / seconds : 10;
    steps = static_cast<int64_t>(static_cast<double>(steps) * std::clamp(wanted, 1.1, 10.0)) + 1;
  }
  return steps;
}

double microseconds_per_step(const Timed& timed, int64_t steps) {
  return timed.seconds(steps) / static_cast<double>(steps) * 1e6;
}

std::string cell(const std::optional<double>& microseconds) {
  return microseconds ? fmt::format("{:.4g} us", *microseconds) : "";
}

nlohmann::ordered_json to_json(const std::string& name, const Figure& figure) {
  nlohmann::ordered_json json = {
      {"name", name},
      {"value", figure.value},
      {"unit", figure.unit},
      {"ours", nullptr},
      {"peer", nullptr},
      {"peer_name", nullptr},
      {"repetitions", figure.repetitions},
  };
  if (figure.ours) json["ours"] = *figure.ours;
  if (figure.peer) json["peer"] = *figure.peer;
  if (!figure.peer_name.empty()) json["peer_name"] = figure.peer_name;
  return json;
}

}  // namespace

std::function<double(int64_t)> Timed::time_each(std::function<void()> step) {
  return [step = std::move(step)](int64_t steps) {
    auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; ++i) step();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
}

Figure Stopwatch::compare(const CompareOptions& options) const {
  auto medians = alternate({
      .sides = {options.ours, options.peer},
      .repetitions = options.repetitions,
      .min_seconds = options.min_seconds,
  });
  return {
      .value = medians[1] / medians[0],
      .ours = medians[0],
      .peer = medians[1],
      .peer_name = options.peer_name,
      .repetitions = repetitions(options.repetitions),
  };
}

std::vector<double> Stopwatch::alternate(const AlternateOptions& options) const {
  const size_t sides = options.sides.size();
  std::vector<int64_t> steps;
  for (const Timed& side : options.sides) steps.push_back(steps_for(side, options.min_seconds));
  std::vector<std::vector<double>> times(sides);
  for (int i = 0; i < repetitions(options.repetitions); ++i) {
    for (size_t k = 0; k < sides; ++k) {
      // Who goes first changes too, so that neither always inherits the other's caches.
      const size_t side = i % 2 == 0 ? k : sides - 1 - k;
      times[side].push_back(microseconds_per_step(options.sides[side], steps[side]));
    }
  }
  std::vector<double> medians;
  for (auto& side : times) medians.push_back(median(std::move(side)));
  return medians;
}

Figure Stopwatch::measure(const MeasureOptions& options) const {
  auto time = alternate({
      .sides = {options.step},
      .repetitions = options.repetitions,
      .min_seconds = options.min_seconds,
  })[0];
  return {
      .value = time,
      .unit = "us",
      .ours = time,
      .repetitions = repetitions(options.repetitions),
  };
}

void Suite::add(std::string name, Entry entry) {
  entries_.emplace_back(std::move(name), std::move(entry));
}

std::vector<std::string> Suite::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

int Suite::run(const SuiteOptions& options) const {
  std::vector<const std::pair<std::string, Entry>*> chosen;
  size_t width = 4;
  for (const auto& entry : entries_) {
    if (entry.first.find(options.filter) == std::string::npos) continue;
    chosen.push_back(&entry);
    width = std::max(width, entry.first.size());
  }
  TP_CHECK(!chosen.empty() || options.filter.empty(), "bench",
           "no benchmark's name contains '{}'. See --list for the names.", options.filter);

  constexpr auto kRow = "{:<{}}  {:>12}  {:>14}  {:>14}  {}\n";
  fmt::print(kRow, "name", width, "value", "ours", "peer", "");
  Stopwatch watch(options.repetitions);
  auto results = nlohmann::ordered_json::array();
  bool failed = false;
  for (const auto* entry : chosen) {
    const auto& [name, function] = *entry;
    try {
      Figure figure = function(watch);
      auto value =
          fmt::format("{:.4g} {}", figure.value, figure.unit == "ratio" ? "x" : figure.unit);
      auto separator = figure.peer_name.empty() || figure.note.empty() ? "" : "; ";
      auto remarks = figure.peer_name + separator + figure.note;
      fmt::print(kRow, name, width, value, cell(figure.ours), cell(figure.peer), remarks);
      results.push_back(to_json(name, figure));
    } catch (const Skip& skip) {
      fmt::print("{:<{}}  skipped: {}\n", name, width, skip.what());
    } catch (const std::exception& error) {
      fmt::print("{:<{}}  failed: {}\n", name, width, error.what());
      failed = true;
    }
    std::fflush(stdout);
  }

  if (!options.json_path.empty()) {
    std::ofstream file(options.json_path);
    file << results.dump(2) << '\n';
    TP_CHECK(file.flush(), "bench", "cannot write '{}'. Choose another file with --json.",
             options.json_path);
  }
  return failed ? 1 : 0;
}

}  // namespace tensorpack::bench
