// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace tensorpack {

/// Calls `work` with 0 to `count` - 1, each number on the thread that is free next: on as many
/// threads as libtorch may use, but no more than `max_threads`. They are started for it, which
/// takes some ten microseconds each. Throws what one of the calls throws.
///
/// For work that does not belong to an operator, such as a file: parallel_for() would leave a team
/// of OpenMP's threads behind on each thread that calls it.
void share_work(size_t count, size_t max_threads, const std::function<void(size_t)>& work);

}  // namespace tensorpack
