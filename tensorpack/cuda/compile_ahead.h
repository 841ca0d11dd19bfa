// SPDX-License-Identifier: Apache-2.0
// Note [Compiling ahead]
// Which kernels a fused operator launches depends on the shapes and types it is given, and the
// trace knows them. So every fused operator is run once on memory with nothing in it, by a launcher
// that notes the kernels; they are compiled together, on all cores. A kernel that is missed is
// compiled when it is first launched.
#pragma once

#include <functional>
#include <future>
#include <vector>

#include "tensorpack/cuda/jit.h"
#include "tensorpack/graph/trace.h"

namespace tensorpack::cuda {

/// The kernels that the fused operators of a trace launch on a device with so many multiprocessors,
/// in order.
std::vector<KernelSource> kernels_of(const Trace& trace, int multiprocessors);

/// Begins to compile and load them for the current device, on another thread, which calls
/// `use_device` to have the same one. Whatever goes wrong is left to the first launch.
std::future<void> compile_ahead(const Trace& trace, std::function<void()> use_device);

}  // namespace tensorpack::cuda
