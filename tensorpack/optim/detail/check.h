// SPDX-License-Identifier: Apache-2.0
// The options of optimizers have their ranges in common.
#pragma once

#include <initializer_list>
#include <utility>

#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

using NamedNumbers = std::initializer_list<std::pair<const char*, double>>;

/// Throws an Error, said to come from the optimizer `where`, for the first number below 0.
inline void check_not_negative(const char* where, NamedNumbers numbers) {
  for (const auto& [name, value] : numbers) {
    TP_CHECK(value >= 0, where, "{} {} must not be negative. Pass 0 or more.", name, value);
  }
}

/// The same for the first number that is not a share of what is kept, in [0, 1).
inline void check_share(const char* where, NamedNumbers numbers) {
  for (const auto& [name, value] : numbers) {
    TP_CHECK(value >= 0 && value < 1, where,
             "{} {} must lie in [0, 1). It is the share that is kept at each step.", name, value);
  }
}

}  // namespace tensorpack::detail
