// SPDX-License-Identifier: Apache-2.0
// What map(), parallel_map() and map_and_batch() have in common.
#pragma once

#include <string>

#include "tensorpack/dataflow/detail/error_counter.h"
#include "tensorpack/dataflow/map.h"

namespace tensorpack::detail {

/// Calls the function of a map stage, from any thread.
class MapRunner {
 public:
  MapRunner(std::string stage, MapWork work, MapOptions options)
      : work_(std::move(work)),
        skips_errors_(options.on_error == OnError::kSkip),
        seed_(seed_or_next(options.seed)),
        errors_(std::move(stage)) {}

  /// Whether every datapoint has a result, so that none needs to be made to know how many there
  /// are.
  bool keeps_all() const { return work_.keeps_all && !skips_errors_; }

  std::optional<DataPoint> operator()(DataPoint point, int64_t pass, int64_t number) {
    Rng rng(derive_seed(seed_, static_cast<uint64_t>(pass)), number);
    if (!skips_errors_) return work_.function(std::move(point), rng);
    try {
      return work_.function(std::move(point), rng);
    } catch (...) {
      errors_.count("datapoint " + std::to_string(number) + " of the pass");
      return std::nullopt;
    }
  }

 private:
  MapWork work_;
  bool skips_errors_;
  uint64_t seed_;
  ErrorCounter errors_;
};

}  // namespace tensorpack::detail
