// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct FixedSizeOptions {
  /// Whether a pass goes on where the one before it ended; otherwise pass p begins with that of the
  /// flow.
  bool keep_position = true;
};

/// Makes passes of exactly `size` datapoints, whatever a pass of the flow has: the passes of the
/// flow follow each other.
Stage fixed_size(int64_t size, FixedSizeOptions options = {});

}  // namespace tensorpack
