// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/png.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#ifdef TENSORPACK_HAS_ZLIB
#include <zlib.h>
#endif

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

void put_big_endian(std::string& bytes, uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(value >> shift));
}

uint32_t crc32_of(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> entries{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ (value & 1 ? 0xEDB88320U : 0);
      entries[i] = value;
    }
    return entries;
  }();
  uint32_t crc = ~0U;
  for (const char byte : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~crc;
}

void put_chunk(std::string& file, std::string_view type, std::string_view data) {
  put_big_endian(file, static_cast<uint32_t>(data.size()));
  const std::string checked = std::string(type).append(data);
  file += checked;
  put_big_endian(file, crc32_of(checked));
}

// Every row behind the number of its filter: 2, each byte less the one above it.
std::string filtered(std::span<const uint8_t> pixels, int64_t height, int64_t row) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(height * (row + 1)));
  for (int64_t y = 0; y < height; ++y) {
    bytes.push_back(2);
    for (int64_t i = y * row; i < (y + 1) * row; ++i) {
      const int above = y == 0 ? 0 : pixels[static_cast<size_t>(i - row)];
      bytes.push_back(static_cast<char>(pixels[static_cast<size_t>(i)] - above));
    }
  }
  return bytes;
}

#ifdef TENSORPACK_HAS_ZLIB

std::string zlib_stream(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string packed(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 6);
  TP_CHECK(status == Z_OK, "encode_png", "zlib failed with status {}.", status);
  packed.resize(size);
  return packed;
}

#else

uint32_t adler32_of(std::string_view bytes) {
  uint32_t a = 1, b = 0;
  for (const char byte : bytes) {
    a = (a + static_cast<uint8_t>(byte)) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

std::string zlib_stream(const std::string& bytes) {
  constexpr size_t kMostInABlock = 65535;
  std::string stream = "\x78\x01";
  for (size_t begin = 0; begin < bytes.size(); begin += kMostInABlock) {
    const auto size = static_cast<uint16_t>(std::min(kMostInABlock, bytes.size() - begin));
    stream.push_back(begin + size == bytes.size() ? 1 : 0);
    for (const uint16_t number : {size, static_cast<uint16_t>(~size)}) {
      stream.push_back(static_cast<char>(number));
      stream.push_back(static_cast<char>(number >> 8));
    }
    stream.append(bytes, begin, size);
  }
  put_big_endian(stream, adler32_of(bytes));
  return stream;
}

#endif

}  // namespace

std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width,
                       int64_t channels) {
  constexpr std::array<char, 5> kColorTypes = {0, 0, 4, 2, 6};  // by the number of channels
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  TP_CHECK(height > 0 && width > 0 && height <= kMost && width <= kMost && channels >= 1 &&
               channels <= 4,
           "encode_png", "an image of {} x {} with {} cannot be written as PNG.", height, width,
           counted(channels, "channel"));
  TP_ASSERT(static_cast<int64_t>(pixels.size()) == height * width * channels);
  std::string header;
  put_big_endian(header, static_cast<uint32_t>(width));
  put_big_endian(header, static_cast<uint32_t>(height));
  header += {8, kColorTypes[static_cast<size_t>(channels)], 0, 0, 0};
  std::string file = "\x89PNG\r\n\x1a\n";
  put_chunk(file, "IHDR", header);
  put_chunk(file, "IDAT", zlib_stream(filtered(pixels, height, width * channels)));
  put_chunk(file, "IEND", "");
  return file;
}

}  // namespace tensorpack
