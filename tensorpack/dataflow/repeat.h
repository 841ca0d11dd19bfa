// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tensorpack/dataflow/dataflow.h"

namespace tensorpack {

/// For repeat(): never end.
inline constexpr int64_t kForever = -1;

/// Makes one pass out of `times` passes of the flow, or out of all of them with kForever.
///
/// Pass p takes the flow's passes p*times .. p*times+times-1, so a shuffled flow comes in a new
/// order each time. With kForever it takes p, p+1, ...; a pass without datapoints then throws
/// Error.
Stage repeat(int64_t times = kForever);

/// Yields every datapoint `times` times in a row.
///
/// The tensors are shared: what comes behind must not change them in place.
Stage repeat_each(int64_t times);

}  // namespace tensorpack
