// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpack {

/// The Castagnoli CRC of some bytes, as iSCSI and TensorBoard use it.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace tensorpack
