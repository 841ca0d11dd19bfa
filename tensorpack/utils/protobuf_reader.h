// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tensorpack {

/// Reads a protocol buffer message field by field; what a field means is in the .proto file.
///
///   ProtoReader reader(bytes);
///   while (const auto field = reader.next()) { ... }
///   TP_CHECK(reader.is_whole(), ...);
class ProtoReader {
 public:
  struct Field {
    int64_t number = 0;
    uint64_t integer = 0;         ///< of int32, int64, uint64, bool and enum fields
    std::string_view bytes = {};  ///< of all others: messages, packed numbers, 4 or 8 fixed bytes
  };

  explicit ProtoReader(std::string_view message) : rest_(message) {}

  /// nullopt at the end of the message, and where the bytes are none.
  std::optional<Field> next();

  /// Whether everything so far was part of a message.
  bool is_whole() const { return is_whole_; }

 private:
  std::optional<uint64_t> take_varint();

  std::string_view rest_;
  bool is_whole_ = true;
};

}  // namespace tensorpack
