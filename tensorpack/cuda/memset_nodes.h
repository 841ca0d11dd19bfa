// SPDX-License-Identifier: Apache-2.0
// Memory that a captured graph clears.
//
// Note [Memsets in graphs]
// Between two kernels of a CUDA graph a device is idle for 0.1 us, around a memset for 6: another
// part of the device does it. cuDNN and cuBLAS clear their workspaces with memsets, 10 times in a
// step of a DCGAN and 132 times in one of GPT-2. A kernel does the same without the wait.
#pragma once

#include "tensorpack/cuda/driver.h"
#include "tensorpack/cuda/jit.h"

namespace tensorpack::cuda {

/// fill_words(unsigned* words, unsigned value, long long count)
KernelSource fill_source();

/// Puts launches of `fill`, a function made of fill_source(), in the place of the memsets in a
/// graph (a CUgraph) that is not instantiated yet; returns of how many. A memset that the driver
/// does not let go, or that is not of whole words, stays.
int replace_memsets(void* graph, void* fill, const Driver& driver);

}  // namespace tensorpack::cuda
