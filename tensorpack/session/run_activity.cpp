// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/session/run_activity.h"

#include <fmt/format.h>

#include <mutex>
#include <vector>

namespace tensorpack {
namespace {

// A lock that nobody waits for costs less than the smallest operator.
std::mutex mutex;
std::vector<RunActivity*> activities;  // in the order in which they began

}  // namespace

RunActivity::RunActivity(RunPhase phase, const Op& op) : phase_(phase), op_(op) {
  const std::lock_guard lock(mutex);
  activities.push_back(this);
}

RunActivity::~RunActivity() {
  const std::lock_guard lock(mutex);
  std::erase(activities, this);
}

std::string describe_run_activity() {
  const std::lock_guard lock(mutex);
  if (activities.empty()) return "No op is being run: a callback takes the time.";
  const std::string& op = activities.back()->op_.name();
  switch (activities.back()->phase_) {
    case RunPhase::kInput:
      return fmt::format("It waits for the data of '{}'.", op);
    case RunPhase::kPreparing:
      return fmt::format("It prepares '{}': recording and verifying take a few steps' time.", op);
    case RunPhase::kRunning:
      return fmt::format("It runs '{}'.", op);
  }
  return "";
}

}  // namespace tensorpack
