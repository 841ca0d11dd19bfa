// SPDX-License-Identifier: Apache-2.0
// Checksums.
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpack {

/// XXH64 of some bytes, as the xxHash library computes it: for finding damage, not for security.
std::uint64_t xxh64(std::string_view bytes, std::uint64_t seed = 0);

}  // namespace tensorpack
