// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/estimated_time_left.h"

#include <numeric>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/stats.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

}  // namespace

EstimatedTimeLeft::EstimatedTimeLeft(EstimatedTimeLeftOptions options) : options_(options) {
  TP_CHECK(options_.last_k_epochs > 0, "EstimatedTimeLeft",
           "last_k_epochs must be positive, got {}.", options_.last_k_epochs);
}

void EstimatedTimeLeft::before_train() {
  durations_.clear();
  timer_.reset();
}

void EstimatedTimeLeft::trigger_epoch() {
  durations_.push_back(timer_.seconds());
  timer_.reset();
  if (static_cast<int64_t>(durations_.size()) > options_.last_k_epochs) {
    durations_.erase(durations_.begin());
  }
  const int64_t epochs = trainer().max_epoch() - epoch_num();
  if (epochs <= 0) return;
  const double each = options_.median ? median(durations_) : mean(durations_);
  logging::info("Estimated time left: {}.", humanize_time(each * static_cast<double>(epochs)));
}

}  // namespace tensorpack
