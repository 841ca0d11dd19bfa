// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct BatchOptions {
  /// Whether the datapoints left over at the end of a pass make a last, smaller batch.
  bool remainder = false;
};

/// Stacks `size` datapoints into one: every component gets a new first dimension.
///
/// Throws Error where the pipe is built if a pass is known to be too short for a single batch, and
/// in next() if the datapoints of a batch differ in the number, shape or type of their components.
Stage batch(int64_t size, BatchOptions options = {});

}  // namespace tensorpack
