// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tensorpack {

/// What the operators of one layer took in a step.
struct LayerTime {
  std::string layer = {};  ///< "conv0"; empty for what is in none
  double forward = 0;      ///< seconds
  double backward = 0;     ///< seconds
  int64_t bytes = 0;       ///< of all their results
};

}  // namespace tensorpack
