// SPDX-License-Identifier: Apache-2.0
// Rewrites of a trace that pay on the CPU. They change nothing on a processor without AVX2.
#pragma once

#include "tensorpack/graph/trace.h"

namespace tensorpack::cpu {

/// Has max pooling of squares of two by two, with a relu before it, done by a kernel of ours, both
/// ways; returns into how many operators. See Note [Pooling squares].
int fuse_max_pool(Trace& trace);

/// Has convolutions done by kernels of ours where those take less time, both ways; returns how
/// many. See Note [Choosing convolutions].
int choose_convolutions(Trace& trace);

}  // namespace tensorpack::cpu
