// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/report.h"

#include <fmt/format.h>

#include <cmath>

#include "benchmarks/groups.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack::bench {

void add_report_benchmarks(Suite& suite) {
  // A large report, as it is written at the end of an epoch: to the disk, and synchronized.
  suite.add("monitors/report_seconds", [](const Stopwatch& watch) {
    constexpr int kScalars = 200;
    constexpr int64_t kPoints = 10'000;
    const TempDir dir;
    Report report({.path = dir / "report.html"});
    LoopState loop{.max_epoch = 1};
    report.before_train(loop);
    std::vector<std::string> names;
    for (int i = 0; i < kScalars; ++i) names.push_back(fmt::format("scalar{}", i));
    for (; loop.global_step < kPoints; ++loop.global_step) {
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
    figure.note =
        fmt::format("{} scalars of {} points, {:.1f} MB", kScalars, kPoints,
                    static_cast<double>(std::filesystem::file_size(dir / "report.html")) / 1e6);
    return figure;
  });
}

}  // namespace tensorpack::bench
