// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct LocallyShuffleOptions {
  /// How often each datapoint comes in a pass.
  int64_t reuse = 1;
  /// The buffer is shuffled after this many new datapoints; 0: a third of the buffer.
  int64_t interval = 0;
  std::optional<uint64_t> seed = {};
};

/// Shuffles a buffer of `buffer_size` datapoints now and then, and yields them from its front.
///
/// For slow sources, of which each datapoint is worth more than one use. shuffle(buffer_size) mixes
/// better.
Stage locally_shuffle(int64_t buffer_size, LocallyShuffleOptions options = {});

}  // namespace tensorpack
