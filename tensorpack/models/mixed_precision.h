// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace tensorpack {

/// While it lives, convolutions, linear layers and products of matrices called on this thread
/// compute in bfloat16, on the CPU and on CUDA. Variables stay float32, and so do their gradients
/// and updates; what a layer returns may be bfloat16: compute the cost from `logits.to(kFloat)`.
/// Open it in the tower function, after the TowerContext.
class [[nodiscard]] MixedPrecision {
 public:
  explicit MixedPrecision(bool enabled = true);
  ~MixedPrecision();
  MixedPrecision(const MixedPrecision&) = delete;
  MixedPrecision& operator=(const MixedPrecision&) = delete;

 private:
  bool was_enabled_;
};

}  // namespace tensorpack
