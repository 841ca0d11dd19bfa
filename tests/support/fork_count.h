// SPDX-License-Identifier: Apache-2.0
// Counts the threads that compute in parallel_for().
#pragma once

#include <cstddef>
#include <functional>

namespace tensorpack {

/// How many threads the library's own code forked to while `work` ran: the most of any loop.
/// Forks of libtorch's operators do not count. 1 when there was none.
size_t threads_forked_by(const std::function<void()>& work);

}  // namespace tensorpack
