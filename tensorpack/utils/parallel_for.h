// SPDX-License-Identifier: Apache-2.0
// Loops on the threads that libtorch's own operators use.
#pragma once

#include <c10/util/FunctionRef.h>

#include <cstdint>

namespace tensorpack {

/// Splits 0 to `count` into ranges and calls `work(begin, end)` for each, on as many threads as
/// an operator of libtorch uses (at::get_num_threads()). The caller's thread is one of them.
/// Called inside `work`, it stays on its thread. Rethrows the first exception of `work` when all
/// threads have returned.
///
/// The number of ranges depends on the number of threads: results are the same bits on any number
/// of threads only if they do not depend on where a range begins.
void parallel_for(int64_t count, c10::function_ref<void(int64_t, int64_t)> work);

}  // namespace tensorpack
