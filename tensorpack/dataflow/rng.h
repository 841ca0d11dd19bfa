// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "tensorpack/utils/rng.h"

namespace tensorpack {

/// The numbers 0..size-1 in random order.
std::vector<int64_t> random_permutation(int64_t size, Rng& rng);

}  // namespace tensorpack
