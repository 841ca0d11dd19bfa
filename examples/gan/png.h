// SPDX-License-Identifier: Apache-2.0
// The smallest writer of grayscale PNG files: without compression, so without a library.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace png {

inline void append_number(std::string& to, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to += static_cast<char>(value >> shift & 255);
}

inline uint32_t crc(const std::string& bytes) {
  uint32_t rest = ~0U;
  for (unsigned char byte : bytes) {
    rest ^= byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0xedb88320U : 0);
  }
  return ~rest;
}

inline std::string chunk(const std::string& type, const std::string& data) {
  std::string bytes;
  append_number(bytes, static_cast<uint32_t>(data.size()));
  bytes += type + data;
  append_number(bytes, crc(type + data));
  return bytes;
}

// A zlib stream of blocks that are stored as they are.
inline std::string stored(const std::string& data) {
  constexpr size_t kBlock = 65535;
  std::string bytes = "\x78\x01";
  for (size_t begin = 0; begin < data.size(); begin += kBlock) {
    const std::string block = data.substr(begin, kBlock);
    const auto size = static_cast<uint16_t>(block.size());
    bytes += static_cast<char>(begin + kBlock >= data.size());
    for (uint16_t part : {size, static_cast<uint16_t>(~size)}) {
      bytes += static_cast<char>(part & 255);
      bytes += static_cast<char>(part >> 8);
    }
    bytes += block;
  }
  uint32_t a = 1, b = 0;
  for (unsigned char byte : data) {
    a = (a + byte) % 65521;
    b = (b + a) % 65521;
  }
  append_number(bytes, b << 16 | a);
  return bytes;
}

/// The file of a picture of `width` x `height` bytes, row by row.
inline std::string encode(const uint8_t* pixels, uint32_t width, uint32_t height) {
  std::string header;
  append_number(header, width);
  append_number(header, height);
  header += std::string("\x08\0\0\0\0", 5);  // 8 bits, gray
  std::string rows;
  for (uint32_t y = 0; y < height; ++y) {
    rows += '\0';  // no filter
    rows.append(reinterpret_cast<const char*>(pixels) + size_t{y} * width, width);
  }
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", stored(rows)) +
         chunk("IEND", "");
}

}  // namespace png
