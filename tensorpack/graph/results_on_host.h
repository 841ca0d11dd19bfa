// SPDX-License-Identifier: Apache-2.0
// Running a function in less memory of its device than it takes.
//
// Note [Results on the host]
// A function that is recorded or verified runs as it is written, with all that autograd keeps. A
// watch sees every operator before it runs. So results that were used longest ago may lie on the
// host until an operator reads them: their storages are emptied and filled again, which neither
// tensors nor autograd notice. A training step makes its results in one order and needs them in
// reverse, so few are moved twice.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

struct ResultsOnHostOptions {
  /// Of the results that are there at once, this share may be on the device. By default about as
  /// much as a step holds that makes all it can again.
  double share_on_device = 0.45;
  /// So many bytes may be there in any case.
  int64_t enough_on_device = 0;
  /// No more bytes than these are on the host at a time.
  int64_t most_on_host = std::numeric_limits<int64_t>::max();
  /// Smaller ones stay on the device.
  int64_t smallest_bytes = 1 << 20;
};

/// What it came to, in bytes.
struct ResultsOnHost {
  int64_t most = 0;            ///< results that were there at once
  int64_t most_on_device = 0;  ///< of them, on the device
  int64_t moved = 0;           ///< to the host
};

/// While it lives, the functions of ops that are run on this thread run with part of their results
/// on the host; with all of them on their device if there are no options.
class [[nodiscard]] ResultsOnHostScope {
 public:
  explicit ResultsOnHostScope(std::optional<ResultsOnHostOptions> options);
  ~ResultsOnHostScope();
  ResultsOnHostScope(const ResultsOnHostScope&) = delete;
  ResultsOnHostScope& operator=(const ResultsOnHostScope&) = delete;

  /// Runs a function as the scope around says.
  static NamedTensors run(const std::function<NamedTensors()>& function, c10::Device device);

 private:
  std::optional<ResultsOnHostOptions> before_;
};

/// Runs the function with part of what operators make on `device` on the host in between. All that
/// is left of it in the end is on the device again.
ResultsOnHost run_with_results_on_host(const std::function<void()>& function, c10::Device device,
                                       ResultsOnHostOptions options = {});

}  // namespace tensorpack
