// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/throughput_tracker.h"

#include "tensorpack/utils/error.h"

namespace tensorpack {
namespace {

constexpr const char* kSamples = "Throughput (samples/sec)";
constexpr const char* kSteps = "Throughput (steps/sec)";

}  // namespace

ThroughputTracker::ThroughputTracker(ThroughputTrackerOptions options) : options_(options) {
  TP_CHECK(options_.samples_per_step >= 0, "ThroughputTracker",
           "samples_per_step must not be negative, got {}. Pass 0 to report steps.",
           options_.samples_per_step);
  set_chief_only(false);
}

void ThroughputTracker::before_train() {
  start();
  timer_.pause();
}

// Counts from now on.
void ThroughputTracker::start() {
  const bool was_paused = timer_.is_paused();
  timer_.reset();
  if (was_paused) timer_.pause();
  first_step_ = global_step();
}

ReportedScalars ThroughputTracker::reports() const {
  return {.names = {options_.samples_per_step > 0 ? kSamples : kSteps}, .are_all = true};
}

void ThroughputTracker::trigger() {
  const double seconds = timer_.seconds();
  const int64_t steps = global_step() - first_step_;
  if (steps == 0 || seconds <= 0) return;
  const double rate = static_cast<double>(steps) / seconds;
  if (options_.samples_per_step > 0) {
    trainer().monitors().put_scalar(kSamples,
                                    rate * static_cast<double>(options_.samples_per_step));
  } else {
    trainer().monitors().put_scalar(kSteps, rate);
  }
  start();
}

}  // namespace tensorpack
