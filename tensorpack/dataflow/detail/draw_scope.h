// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "tensorpack/graph/random_stream.h"
#include "tensorpack/utils/seed.h"

namespace tensorpack::detail {

/// While it lives, what a function of the user draws on this thread follows from `seed`: by
/// torch::rand() and other operators, and by stages without a seed that it makes.
class [[nodiscard]] DrawScope {
 public:
  explicit DrawScope(uint64_t seed) : stages_(derive_seed(seed, "stages")), operators_(seed) {}

 private:
  NestedSeeds stages_;
  DrawFromSeed operators_;
};

}  // namespace tensorpack::detail
