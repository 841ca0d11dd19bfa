// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// Runs everything before it on a thread of its own, up to `capacity` datapoints ahead.
///
/// The sequence stays the same. What the flow throws reaches the consumer after the datapoints
/// before it. The thread starts with the first next() of a pass.
Stage prefetch(int64_t capacity);

}  // namespace tensorpack
