// SPDX-License-Identifier: Apache-2.0
// Adding up what towers on the CPU have computed.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <vector>

namespace tensorpack {

/// output[i] = scale * (inputs[0][i] + inputs[1][i] + ...), for `count` elements and every output.
/// Added up from the first to the last, whatever the number of threads, so that the same inputs
/// give the same bits; in float for half and bfloat16. Throws an Error for types that are not
/// floating.
void scaled_sum(c10::ScalarType type, const std::vector<const void*>& inputs,
                const std::vector<void*>& outputs, int64_t count, double scale);

}  // namespace tensorpack
