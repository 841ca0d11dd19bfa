// SPDX-License-Identifier: Apache-2.0
// Kernels compiled at run time.
//
// Note [Run-time compilation]
// NVRTC and the driver are opened when they are first needed: building takes no CUDA toolkit, and a
// machine without them goes on with libtorch's kernels. What was compiled is kept on disk, in
// $XDG_CACHE_HOME/tensorpack/kernels or ~/.cache/tensorpack/kernels, by source, architecture and
// version of the compiler; a damaged entry is compiled again. A kernel is loaded at its first
// launch, which must not be captured: the program's first run sees to that.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace tensorpack::cuda {

/// The text of one kernel, an `extern "C" __global__` function called `name`.
struct KernelSource {
  std::string name = {};
  std::string text = {};
};

struct LaunchShape {
  std::array<unsigned, 2> grid = {1, 1};
  std::array<unsigned, 2> block = {1, 1};
  unsigned shared_bytes = 0;  ///< beyond what the source declares
};

/// Why no kernel can be compiled here; nothing if they can.
const std::optional<std::string>& obstacle_to_compiling();

/// The multiprocessors of the current device.
int multiprocessor_count();

/// Compiles and loads a kernel for the current device. Throws Error if it cannot.
void prepare(const KernelSource& kernel);

/// The same for many, compiled on all cores. One that cannot be compiled is left out.
void prepare_all(const std::vector<KernelSource>& kernels);

/// The function (a CUfunction) of a kernel on the current device. Prepares it the first time.
void* function_of(const KernelSource& kernel);

/// Launches a kernel on a stream (a cudaStream_t) of the current device. `arguments` point to the
/// values of the kernel's parameters. Prepares it the first time. Throws Error if it cannot.
void launch(const KernelSource& kernel, const LaunchShape& shape, void** arguments, void* stream);

/// Kernels compiled by this process so far: neither found on disk nor loaded before.
int compiled_kernels();

}  // namespace tensorpack::cuda
