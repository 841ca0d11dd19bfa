// SPDX-License-Identifier: Apache-2.0
// Looking at datapoints, and at how fast they come.
#pragma once

#include <string>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/stage_stats.h"

namespace tensorpack {

struct PrintOptions {
  int64_t count = 1;
  std::string name = {};
};

/// Logs shape, type and range of each component of the first datapoints of the first pass.
Stage print(PrintOptions options = {});

/// What print() shows of a datapoint.
std::string describe(const DataPoint& point);

struct SpeedOptions {
  int64_t count = 5000;  ///< datapoints to time; passes follow each other
  int64_t warmup = 0;    ///< datapoints before that
  bool progress = true;  ///< whether to show a progress bar
};

struct Speed {
  double datapoints_per_second = 0;
  double bytes_per_second = 0;
  std::vector<StageReport> stages = {};
};

/// Reads the flow as fast as it can and logs its speed and where the time goes.
Speed test_speed(DataFlow& flow, SpeedOptions options = {});

}  // namespace tensorpack
