// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/graph/fixed_shapes.h"
#include "tensorpack/tower/precision.h"
#include "tensorpack/utils/detail/thread_frame.h"

namespace tensorpack {

/// What the function of an op sees of its surroundings while it lives: nothing but the precision of
/// the session.
class [[nodiscard]] FunctionScope {
 public:
  explicit FunctionScope(Precision precision) : precision_(precision) {}

 private:
  MixedPrecision plain_{Precision::kFloat32};  // of the frame outside
  FreshFrame frame_;
  TowerPrecision precision_;
  FixedShapes shapes_;
};

}  // namespace tensorpack
