// SPDX-License-Identifier: Apache-2.0
// Random numbers for dataflows: small, fast, and the same on every platform.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "tensorpack/utils/seed.h"

namespace tensorpack {

/// The SplitMix64 generator, a UniformRandomBitGenerator.
class Rng {
 public:
  using result_type = uint64_t;

  /// The generator of pass number `pass` of a flow with the given seed.
  Rng(uint64_t seed, int64_t pass);

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return std::numeric_limits<uint64_t>::max(); }
  uint64_t operator()();

  /// A number in 0..bound-1, each equally likely. `bound` must be positive.
  uint64_t below(uint64_t bound);

 private:
  uint64_t state_;
};

/// The numbers 0..size-1 in random order.
std::vector<int64_t> random_permutation(int64_t size, Rng& rng);

}  // namespace tensorpack
