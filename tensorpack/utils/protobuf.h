// SPDX-License-Identifier: Apache-2.0
// Writes protocol buffer messages by hand: the few that TensorBoard reads.
//
//   ProtoWriter dimension;
//   dimension.integer(1, 28);
//   ProtoWriter shape;
//   shape.message(2, dimension);
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tensorpack {

/// The bytes of one message, field after field. Field numbers come from the .proto file.
class ProtoWriter {
 public:
  /// int32, int64, uint64, bool and enum fields; negative numbers take ten bytes, as the format
  /// wants.
  void integer(int field, int64_t value) {
    tag(field, 0);
    varint(static_cast<uint64_t>(value));
  }
  void number(int field, double value) { fixed(field, 1, value); }
  void number(int field, float value) { fixed(field, 5, value); }
  /// A repeated field of doubles, packed.
  void numbers(int field, std::span<const double> values) {
    string(field, {reinterpret_cast<const char*>(values.data()), values.size_bytes()});
  }
  void string(int field, std::string_view text) {
    tag(field, 2);
    varint(text.size());
    bytes_.append(text);
  }
  void message(int field, const ProtoWriter& inner) { string(field, inner.bytes()); }

  const std::string& bytes() const { return bytes_; }

 private:
  void tag(int field, int wire_type) { varint(static_cast<uint64_t>(field) << 3 | wire_type); }
  void varint(uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  template <typename T>
  void fixed(int field, int wire_type, T value) {
    tag(field, wire_type);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);  // little-endian, as every machine we run on
    bytes_.append(raw, sizeof raw);
  }

  std::string bytes_;
};

}  // namespace tensorpack
