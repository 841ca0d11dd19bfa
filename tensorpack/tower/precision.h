// SPDX-License-Identifier: Apache-2.0
// The types a model computes in. Its variables, their gradients and their updates are float32
// always.
#pragma once

#include <string>

namespace tensorpack {

enum class Precision {
  kFloat32,
  kTf32,      ///< float32, but products of matrices on CUDA round their operands to 10 bits
  kBFloat16,  ///< convolutions, linear layers and products of matrices in bfloat16
  kFloat16,   ///< the same in float16, CUDA only; small gradients need a LossScaleOptimizer
};

std::string to_string(Precision precision);

/// While it lives, convolutions, linear layers and products of matrices called on this thread
/// compute in bfloat16 or float16, or in float32 again. What a layer returns has that type: compute
/// the cost from `logits.to(kFloat)`. For a part of a tower function; SessionOptions::precision is
/// for all of it.
class [[nodiscard]] MixedPrecision {
 public:
  explicit MixedPrecision(Precision precision = Precision::kBFloat16);
  ~MixedPrecision();
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;

 private:
  Precision before_;
};

/// While it lives, tower functions called on this thread compute in `precision`. Opened by sessions
/// around every run.
class [[nodiscard]] TowerPrecision {
 public:
  explicit TowerPrecision(Precision precision);
  ~TowerPrecision();
  TowerPrecision(const TowerPrecision&) = delete;
  TowerPrecision& operator=(const TowerPrecision&) = delete;

  static Precision current();

 private:
  Precision before_;
};

}  // namespace tensorpack
