// SPDX-License-Identifier: Apache-2.0
// Memory for CPU tensors that does not go back to the kernel between steps.
#pragma once

#include <cstdint>

namespace tensorpack {

namespace detail {

/// Makes libtorch take CPU memory from a cache of freed blocks, by size class. Steps that repeat
/// each other then cause no page faults. Idempotent; set TENSORPACK_CPU_ALLOCATOR=default to keep
/// libtorch's own allocator. A part of tune_process().
void install_caching_cpu_allocator();

}  // namespace detail

struct CpuMemoryStats {
  int64_t bytes_in_use = 0;  ///< as asked for, rounded up to size classes
  int64_t bytes_cached = 0;  ///< freed and kept
  int64_t peak_bytes_in_use = 0;
};
CpuMemoryStats cpu_memory_stats();
void reset_peak_cpu_memory();

/// Returns every cached block to the system.
void empty_cpu_cache();

}  // namespace tensorpack
