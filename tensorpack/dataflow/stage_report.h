// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tensorpack {

/// What one stage of a dataflow did so far.
struct StageReport {
  std::string name = {};
  int64_t threads = 0;      ///< of its own; 0 for a stage that runs on the thread that asks it
  double busy_seconds = 0;  ///< of all its threads together, estimated from a sample
  double upstream_wait_seconds = 0;
  double downstream_wait_seconds = 0;
  double queue_depth = 0;  ///< on average
  int64_t capacity = 0;    ///< of its queue; 0 for none
};

}  // namespace tensorpack
