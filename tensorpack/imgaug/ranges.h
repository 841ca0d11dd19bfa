// SPDX-License-Identifier: Apache-2.0
// From what numbers are drawn.
#pragma once

#include <cstdint>

namespace tensorpack::imgaug {

/// Numbers from `low` to `high`.
struct Range {
  double low = 0;
  double high = 0;
};

/// Whole numbers from `low` to `high`, both included.
struct IntRange {
  int64_t low = 0;
  int64_t high = 0;
};

}  // namespace tensorpack::imgaug
