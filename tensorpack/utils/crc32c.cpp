// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

namespace tensorpack {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][byte]: what a byte does to the sum when k zero bytes follow it.
Tables make_tables() {
  constexpr uint32_t kPolynomial = 0x82F63B78;
  Tables tables{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
    tables[0][i] = value;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t i = 0; i < 256; ++i) {
      const uint32_t before = tables[k - 1][i];
      tables[k][i] = before >> 8 ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static_assert(std::endian::native == std::endian::little);
  static const Tables tables = make_tables();
  uint32_t crc = ~0U;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {  // eight bytes at a time: images are large
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= tables[7 - k][word >> (8 * k) & 0xFF];
  }
  for (; i < bytes.size(); ++i) {
    crc = crc >> 8 ^ tables[0][(crc ^ static_cast<uint8_t>(bytes[i])) & 0xFF];
  }
  return ~crc;
}

std::uint32_t masked_crc32c(std::string_view bytes) {
  return std::rotr(crc32c(bytes), 15) + 0xA282EAD8U;
}

}  // namespace tensorpack
