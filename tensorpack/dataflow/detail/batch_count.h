// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {

/// How datapoints and batches of them are counted.
struct BatchCount {
  int64_t size = 1;        ///< datapoints of a batch
  bool remainder = false;  ///< whether the last ones of a pass are a shorter batch

  int64_t batches_of(int64_t points) const {
    return points / size + (remainder && points % size > 0 ? 1 : 0);
  }
  std::optional<int64_t> batches_of(std::optional<int64_t> points) const {
    if (!points) return std::nullopt;
    return batches_of(*points);
  }

  /// As many as can be counted, if there are more.
  int64_t points_of(int64_t batches) const {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    return batches > kMax / size ? kMax : batches * size;
  }

  /// Throws Error if a pass of so many datapoints has no batch.
  void check(std::optional<int64_t> points, const std::string& where) const {
    TP_CHECK(remainder || !points || *points >= size, where,
             "a pass has {}, too few for one batch of {}. Choose a smaller batch, or "
             "keep short batches with {{.remainder = true}}.",
             counted(*points, "datapoint"), size);
  }
};

}  // namespace tensorpack::detail
