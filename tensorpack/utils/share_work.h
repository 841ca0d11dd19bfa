// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace tensorpack {

/// Calls `work` with 0 to `count` - 1 on as many threads as libtorch may use, each number on the
/// thread that is free next. Throws what one of them throws.
void share_work(size_t count, const std::function<void(size_t)>& work);

}  // namespace tensorpack
