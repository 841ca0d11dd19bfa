// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/protobuf_reader.h"

namespace tensorpack {

std::optional<ProtoReader::Field> ProtoReader::next() {
  if (rest_.empty() || !is_whole_) return std::nullopt;
  is_whole_ = false;  // until the field is there
  const auto tag = take_varint();
  if (!tag) return std::nullopt;
  Field field{.number = static_cast<int64_t>(*tag >> 3)};
  std::optional<uint64_t> size;
  switch (*tag & 7) {
    case 0: {
      const auto integer = take_varint();
      if (!integer) return std::nullopt;
      field.integer = *integer;
      size = 0;
      break;
    }
    case 1:
      size = 8;
      break;
    case 2:
      size = take_varint();
      break;
    case 5:
      size = 4;
      break;
    default:
      break;
  }
  if (!size || *size > rest_.size()) return std::nullopt;
  field.bytes = rest_.substr(0, *size);
  rest_.remove_prefix(*size);
  is_whole_ = true;
  return field;
}

// A number of seven bits a byte.
std::optional<uint64_t> ProtoReader::take_varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(rest_.front());
    rest_.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return std::nullopt;
}

}  // namespace tensorpack
