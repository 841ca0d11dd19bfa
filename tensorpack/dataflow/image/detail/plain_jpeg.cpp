// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/image/detail/plain_jpeg.h"

#include <cstdint>
#include <cstring>

namespace tensorpack::detail {
namespace {

// The markers of ITU T.81, table B.1, and Adobe's.
constexpr uint8_t kBaseline = 0xc0;
constexpr uint8_t kHuffmanTables = 0xc4;
constexpr uint8_t kEnd = 0xd9;
constexpr uint8_t kScan = 0xda;
constexpr uint8_t kAdobe = 0xee;

uint8_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

// Frames other than baseline, and what changes a frame later.
bool is_another_frame(uint8_t marker) {
  return (marker > kBaseline && marker <= 0xcf && marker != kHuffmanTables) || marker == 0xdc ||
         marker == 0xde;
}

// The body of a baseline frame: 8 bits, YCbCr with whole colours behind the brightness.
bool is_plain_frame(std::string_view body) {
  if (body.size() != 15 || byte_at(body, 0) != 8 || byte_at(body, 5) != 3) return false;
  const bool has_size =
      (byte_at(body, 1) | byte_at(body, 2)) != 0 && (byte_at(body, 3) | byte_at(body, 4)) != 0;
  const uint8_t brightness = byte_at(body, 7);
  const bool is_shared_by_few =
      brightness == 0x11 || brightness == 0x21 || brightness == 0x12 || brightness == 0x22;
  // Components that are called R, G and B are that.
  const bool is_rgb = byte_at(body, 6) == 'R' && byte_at(body, 9) == 'G';
  return has_size && is_shared_by_few && !is_rgb && byte_at(body, 10) == 0x11 &&
         byte_at(body, 13) == 0x11;
}

// Whether Adobe's note says anything but YCbCr.
bool is_other_color(std::string_view body) {
  return body.starts_with("Adobe") && (body.size() < 12 || byte_at(body, 11) != 1);
}

// Whether what is coded goes on to the end mark, with none but restart marks in it.
bool ends_well(std::string_view coded) {
  const char* at = coded.data();
  const char* const end = at + coded.size();
  while (at < end) {
    at = static_cast<const char*>(std::memchr(at, 0xff, end - at));
    if (at == nullptr || at + 1 >= end) return false;
    const auto next = static_cast<uint8_t>(at[1]);
    if (next == kEnd) return true;
    if (next == 0xff) {  // filling
      ++at;
      continue;
    }
    if (next != 0 && (next < 0xd0 || next > 0xd7)) return false;
    at += 2;
  }
  return false;
}

}  // namespace

bool is_plain_jpeg(std::string_view bytes) {
  if (!bytes.starts_with("\xff\xd8")) return false;
  bool has_frame = false;
  size_t at = 2;
  while (at + 4 <= bytes.size()) {
    if (byte_at(bytes, at) != 0xff) return false;
    const uint8_t marker = byte_at(bytes, at + 1);
    if (marker == 0xff) {  // filling
      ++at;
      continue;
    }
    const size_t length = (size_t{byte_at(bytes, at + 2)} << 8) | byte_at(bytes, at + 3);
    if (marker < kBaseline || (marker >= 0xd0 && marker <= kEnd) || length < 2 ||
        length + 2 > bytes.size() - at) {
      return false;
    }
    const std::string_view body = bytes.substr(at + 4, length - 2);
    at += 2 + length;
    if (marker == kScan) {
      return has_frame && !body.empty() && byte_at(body, 0) == 3 && ends_well(bytes.substr(at));
    }
    if (is_another_frame(marker) || (marker == kAdobe && is_other_color(body))) return false;
    if (marker == kBaseline) {
      if (has_frame || !is_plain_frame(body)) return false;
      has_frame = true;
    }
  }
  return false;
}

}  // namespace tensorpack::detail
