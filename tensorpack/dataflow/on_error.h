// SPDX-License-Identifier: Apache-2.0
// What happens with datapoints that cannot be made.
#pragma once

#include <cstdint>

namespace tensorpack {

enum class OnError : uint8_t {
  kThrow,  ///< The error reaches the consumer.
  kSkip,   ///< The datapoint is left out, counted, and told of in the log.
};

}  // namespace tensorpack
