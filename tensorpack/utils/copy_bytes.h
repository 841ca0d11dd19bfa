// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace tensorpack {

/// memcpy() for what is not read again soon: it leaves the caches to others, and does not fetch
/// memory only to overwrite it, which makes it up to twice as fast.
void copy_bytes_past_caches(void* to, const void* from, std::size_t count);

}  // namespace tensorpack
