// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/detail/npy_header.h"

#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <limits>
#include <optional>

namespace tensorpack::detail {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kAlignment = 64;

constexpr std::array<std::pair<const char*, at::ScalarType>, 9> kNpyTypes = {{
    {"f8", at::ScalarType::Double},
    {"f4", at::ScalarType::Float},
    {"f2", at::ScalarType::Half},
    {"i8", at::ScalarType::Long},
    {"i4", at::ScalarType::Int},
    {"i2", at::ScalarType::Short},
    {"i1", at::ScalarType::Char},
    {"u1", at::ScalarType::Byte},
    {"b1", at::ScalarType::Bool},
}};

// Reads the dictionary of a header, which is written as in Python.
class Literal {
 public:
  explicit Literal(std::string_view text) : text_(text) {}

  bool accept(std::string_view token) {
    skip_spaces();
    if (!text_.starts_with(token)) return false;
    text_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    require(accept(token),
            "its header is not '{{'descr': ..., 'fortran_order': ..., 'shape': "
            "...}}'");
  }
  std::string string() {
    const std::string_view quote = accept("\"") ? "\"" : (expect("'"), "'");
    const size_t end = text_.find(quote);
    require(end != std::string_view::npos, "its header has a text without an end");
    std::string value(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return value;
  }
  bool boolean() {
    if (accept("True")) return true;
    expect("False");
    return false;
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> values;
    expect("(");
    while (!accept(")")) {
      values.push_back(count());
      accept("L");  // as Python 2 wrote it
      if (!accept(",")) {
        expect(")");
        break;
      }
    }
    return values;
  }
  bool at_end() {
    skip_spaces();
    return text_.empty();
  }

 private:
  void skip_spaces() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \n"), text_.size()));
  }

  int64_t count() {
    skip_spaces();
    int64_t value = -1;
    const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value);
    require(error == std::errc() && value >= 0, "its shape has something that is no size");
    text_.remove_prefix(static_cast<size_t>(end - text_.data()));
    return value;
  }

  std::string_view text_;
};

void set_dtype(const std::string& descr, NpyHeader& header) {
  for (const auto& [name, type] : kNpyTypes) {
    if (descr.size() != 3 || descr.substr(1) != name) continue;
    const char order = descr[0];
    require(order == '<' || order == '>' || order == '|' || order == '=',
            "its type '{}' is not supported", descr);
    header.dtype = type;
    header.big_endian = order == '>' && c10::elementSize(type) > 1;
    return;
  }
  throw malformed("its type '{}' is not supported", descr);
}

NpyHeader parse(std::string_view text) {
  NpyHeader header;
  int fields = 0;
  Literal literal(text);
  literal.expect("{");
  while (!literal.accept("}")) {
    const std::string key = literal.string();
    literal.expect(":");
    if (key == "descr") {
      set_dtype(literal.string(), header);
    } else if (key == "fortran_order") {
      header.fortran_order = literal.boolean();
    } else if (key == "shape") {
      header.shape = literal.tuple();
    } else {
      throw malformed("its header has an unknown field '{}'", key);
    }
    ++fields;
    if (!literal.accept(",")) {
      literal.expect("}");
      break;
    }
  }
  require(fields == 3 && literal.at_end(), "its header has {} fields instead of 3", fields);
  return header;
}

uint64_t bytes_of(const NpyHeader& header) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  uint64_t bytes = c10::elementSize(header.dtype);
  uint64_t stride = bytes;  // a product of sizes too, even where another one is 0
  for (const int64_t size : header.shape) {
    const auto factor = static_cast<uint64_t>(size);
    require(factor == 0 || stride <= kMax / factor, "it has the impossible shape [{}]",
            fmt::join(header.shape, ", "));
    stride *= std::max<uint64_t>(factor, 1);
    bytes *= factor;
  }
  return bytes;
}

uint64_t take_integer(std::string_view& bytes, size_t size) {
  require(bytes.size() >= size, "its header is cut off");
  uint64_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  bytes.remove_prefix(size);
  return value;
}

}  // namespace

const char* npy_dtype_name(at::ScalarType dtype) {
  for (const auto& [name, type] : kNpyTypes) {
    if (dtype == type) return name;
  }
  return nullptr;
}

std::string format_npy_header(const NpyHeader& header) {
  const bool is_single_byte = c10::elementSize(header.dtype) == 1;
  std::string dictionary = fmt::format(
      "{{'descr': '{}{}', 'fortran_order': {}, 'shape': ({}{}), }}", is_single_byte ? "|" : "<",
      npy_dtype_name(header.dtype), header.fortran_order ? "True" : "False",
      fmt::join(header.shape, ", "), header.shape.size() == 1 ? "," : "");
  const size_t before = kMagic.size() + 2 + 2;
  const size_t unpadded = before + dictionary.size() + 1;
  dictionary.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  dictionary += '\n';
  require(dictionary.size() <= std::numeric_limits<uint16_t>::max(), "it has {} dimensions",
          header.shape.size());
  std::string bytes(kMagic);
  bytes += '\x01';
  bytes += '\0';
  bytes += static_cast<char>(dictionary.size() & 255);
  bytes += static_cast<char>(dictionary.size() >> 8);
  return bytes + dictionary;
}

NpyHeader take_npy_header(std::string_view& bytes) {
  constexpr uint64_t kMaxHeader = 10'000;  // as NumPy has it
  require(bytes.starts_with(kMagic), "it is not an array of NumPy");
  bytes.remove_prefix(kMagic.size());
  const uint64_t version = take_integer(bytes, 1);
  take_integer(bytes, 1);
  require(version >= 1 && version <= 3, "it has version {} of the format; 1 to 3 are known",
          version);
  const uint64_t length = take_integer(bytes, version == 1 ? 2 : 4);
  require(length <= std::min<uint64_t>(kMaxHeader, bytes.size()), "it claims a header of {} bytes",
          length);
  const NpyHeader header = parse(bytes.substr(0, length));
  bytes.remove_prefix(length);
  require(bytes_of(header) == bytes.size(), "its type and shape [{}] take {} bytes, but it has {}",
          fmt::join(header.shape, ", "), bytes_of(header), bytes.size());
  return header;
}

}  // namespace tensorpack::detail
