// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace tensorpack {

/// The Castagnoli CRC of some bytes, as iSCSI and TensorBoard use it.
std::uint32_t crc32c(std::string_view bytes);

/// The same as records of TensorFlow have it: a checksum of bytes that contain checksums is weak,
/// so it is not stored as it is.
std::uint32_t masked_crc32c(std::string_view bytes);

}  // namespace tensorpack
