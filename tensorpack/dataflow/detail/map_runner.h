// SPDX-License-Identifier: Apache-2.0
// What map(), parallel_map() and map_and_batch() have in common.
#pragma once

#include <string>

#include "tensorpack/dataflow/detail/draw_scope.h"
#include "tensorpack/dataflow/detail/error_counter.h"
#include "tensorpack/dataflow/detail/part.h"
#include "tensorpack/dataflow/map.h"

namespace tensorpack::detail {

/// Calls the function of a map stage, from any thread.
class MapRunner {
 public:
  /// For datapoints of such a part.
  MapRunner(std::string stage, MapWork work, MapOptions options, Part part)
      : work_(std::move(work)),
        skips_errors_(options.on_error == OnError::kSkip),
        seed_(options.seed),
        part_(part),
        errors_(std::move(stage)) {}

  /// Whether every datapoint has a result, so that none needs to be made to know how many there
  /// are.
  bool keeps_all() const { return work_.keeps_all && !skips_errors_; }

  std::optional<DataPoint> operator()(DataPoint point, int64_t pass, int64_t number) {
    const uint64_t seed_of_pass = derive_seed(seed_.value(), static_cast<uint64_t>(pass));
    const int64_t number_in_all = part_.number_in_all(number);
    Rng rng(seed_of_pass, number_in_all);
    const DrawScope scope(derive_seed(derive_seed(seed_of_pass, "draws"), number_in_all));
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
  StageSeed seed_;
  Part part_;
  ErrorCounter errors_;
};

}  // namespace tensorpack::detail
