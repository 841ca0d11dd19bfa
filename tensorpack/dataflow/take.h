// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// Ends every pass after its first `count` datapoints.
Stage take(int64_t count);

}  // namespace tensorpack
