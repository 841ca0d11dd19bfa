// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

struct ShuffleOptions {
  /// The order of a pass follows from this and the pass number; by default from global_seed().
  std::optional<uint64_t> seed = {};
};

/// Yields the datapoints of each pass in random order, every order equally likely.
///
/// Keeps a whole pass in memory; throws Error where the pipe is built if its size is not known.
Stage shuffle(ShuffleOptions options = {});

/// Yields each time a random one of the `buffer_size` datapoints read ahead.
///
/// A pass still yields each datapoint once. A buffer as large as the pass shuffles it completely.
Stage shuffle(int64_t buffer_size, ShuffleOptions options = {});

}  // namespace tensorpack
