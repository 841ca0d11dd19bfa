// SPDX-License-Identifier: Apache-2.0
// Random numbers for data and its augmentation: small, fast, and the same on every platform.
#pragma once

#include <cstdint>
#include <limits>

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

  /// A whole number in low..high, both included, each equally likely. `high` must not be lower.
  int64_t between(int64_t low, int64_t high);

  /// A number in [0, 1), or in [low, high).
  double uniform();
  double uniform(double low, double high);

  /// A number from the normal distribution around 0 with standard deviation 1.
  double normal();

  /// Whether an event of this probability happens.
  bool chance(double probability);

 private:
  uint64_t state_;
};

}  // namespace tensorpack
