// SPDX-License-Identifier: Apache-2.0
// What a session is doing, for whoever wonders why it takes so long.
#pragma once

#include <string>

#include "tensorpack/graph/op.h"

namespace tensorpack {

enum class RunPhase {
  kInput,      ///< waits for data
  kPreparing,  ///< records, lowers or verifies an op
  kRunning,    ///< runs an op
};

/// While it lives, some session of the process is in a phase of a run of `op`. The last to begin is
/// the one that is told.
class [[nodiscard]] RunActivity {
 public:
  RunActivity(RunPhase phase, const Op& op);
  ~RunActivity();
  RunActivity(const RunActivity&) = delete;
  RunActivity& operator=(const RunActivity&) = delete;

 private:
  RunPhase phase_;
  const Op& op_;
  friend std::string describe_run_activity();
};

/// "It waits for the data of 'train_op'."
std::string describe_run_activity();

}  // namespace tensorpack
