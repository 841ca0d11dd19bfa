// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

namespace tensorpack {

/// While it lives, functions of libtorch that select rows by their contents, and so cannot be
/// recorded, compute the same on this thread without a selection. That is cross_entropy_loss() with
/// label smoothing and the mean of the losses, and repeat_interleave() by a number.
class [[nodiscard]] FixedShapes {
 public:
  FixedShapes();
  ~FixedShapes();
  FixedShapes(const FixedShapes&) = delete;
  FixedShapes& operator=(const FixedShapes&) = delete;

 private:
  struct Guards;
  std::unique_ptr<Guards> guards_;
};

}  // namespace tensorpack
