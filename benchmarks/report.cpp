// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "benchmarks/groups.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack::bench {
namespace {

// What it takes to write a report at the end of an epoch: to the disk, and synchronized.
Figure time_report(const Stopwatch& watch, int scalars, int64_t points) {
  const TempDir dir;
  const std::filesystem::path path = dir / "report.html";
  Report report({.path = path});
  LoopState loop{.max_epoch = 1};
  report.before_train(loop);
  std::vector<std::string> names;
  for (int i = 0; i < scalars; ++i) names.push_back(fmt::format("scalar{}", i));
  for (; loop.global_step < points; ++loop.global_step) {
    for (const std::string& name : names) {
      report.process_scalar(name, std::sin(0.1 * static_cast<double>(loop.global_step)), loop);
    }
  }
  Figure figure = watch.measure({.step = [&] {
    report.process_scalar(names[0], 1, loop);
    report.flush();
  }});
  figure.value /= 1e6;
  figure.unit = "s";
  figure.note = fmt::format("{} scalars of {} points, {} KB", scalars, points,
                            std::filesystem::file_size(path) / 1000);
  return figure;
}

}  // namespace

void add_report_benchmarks(Suite& suite) {
  suite.add("monitors/report_seconds",
            [](const Stopwatch& watch) { return time_report(watch, 20, 1000); });
  suite.add("monitors/large_report_seconds",
            [](const Stopwatch& watch) { return time_report(watch, 200, 10'000); });
}

}  // namespace tensorpack::bench
