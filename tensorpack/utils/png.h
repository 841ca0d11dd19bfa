// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace tensorpack {

/// The bytes of a PNG file. `pixels` are height x width x channels bytes, row by row; of 1 to 4
/// channels: gray, gray with alpha, RGB, RGB with alpha. Not compressed when the library was built
/// without zlib.
std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                       int64_t channels);

}  // namespace tensorpack
