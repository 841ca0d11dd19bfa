// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/detail/safetensors_header.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "tensorpack/utils/string.h"

namespace tensorpack::detail {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* kMetadata = "__metadata__";

constexpr std::array<std::pair<const char*, at::ScalarType>, 10> kTypes = {{
    {"F64", at::ScalarType::Double},
    {"F32", at::ScalarType::Float},
    {"F16", at::ScalarType::Half},
    {"BF16", at::ScalarType::BFloat16},
    {"I64", at::ScalarType::Long},
    {"I32", at::ScalarType::Int},
    {"I16", at::ScalarType::Short},
    {"I8", at::ScalarType::Char},
    {"U8", at::ScalarType::Byte},
    {"BOOL", at::ScalarType::Bool},
}};

// The parser keeps the last of several equal keys; in a header that would hide a tensor. Nor does
// it mind a hundred million brackets, which take a hundred times their size in memory: what no
// header has is refused where it begins.
json parse_strictly(std::string_view text) {
  constexpr int kMaxDepth = 2;  // the header, an entry, its shape
  constexpr size_t kMaxLength = 64;
  std::vector<std::set<std::string>> keys;
  size_t length = 0;
  return json::parse(text, [&](int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start || event == json::parse_event_t::array_start) {
      require(depth <= kMaxDepth, "its header has objects or lists inside of an entry's fields");
      length = 0;
    }
    if (event == json::parse_event_t::value && depth > kMaxDepth) {
      require(++length <= kMaxLength, "a list in its header has more than {} numbers", kMaxLength);
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      require(keys.back().insert(key).second, "'{}' occurs twice in the header", key);
    }
    return true;
  });
}

at::ScalarType parse_dtype(const std::string& name, const std::string& dtype) {
  for (const auto& [known, type] : kTypes) {
    if (dtype == known) return type;
  }
  throw malformed("'{}' is of type '{}', which is not supported", name, dtype);
}

int64_t parse_count(const std::string& name, const json& value) {
  require(
      value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<int64_t>::max(),
      "the sizes or offsets of '{}' are not all non-negative integers", name);
  return value.get<int64_t>();
}

const json& field(const std::string& name, const json& entry, const char* key, json::value_t type) {
  const auto found = entry.find(key);
  require(found != entry.end() && found->type() == type, "the entry of '{}' has no valid '{}'",
          name, key);
  return *found;
}

int64_t bytes_of(const TensorEntry& entry) {
  auto bytes = static_cast<int64_t>(c10::elementSize(entry.dtype));
  // Strides are products of the sizes too, even where another size is 0.
  int64_t stride = bytes;
  for (const int64_t size : entry.shape) {
    require(size == 0 || stride <= std::numeric_limits<int64_t>::max() / size,
            "'{}' has the impossible shape [{}]", entry.name, fmt::join(entry.shape, ", "));
    stride *= std::max<int64_t>(size, 1);
    bytes *= size;
  }
  return bytes;
}

TensorEntry parse_entry(const std::string& name, const json& value) {
  require(value.is_object(), "the entry of '{}' is not an object", name);
  TensorEntry entry{.name = name};
  entry.dtype = parse_dtype(
      name, field(name, value, "dtype", json::value_t::string).get_ref<const std::string&>());
  for (const json& size : field(name, value, "shape", json::value_t::array)) {
    entry.shape.push_back(parse_count(name, size));
  }
  const json& offsets = field(name, value, "data_offsets", json::value_t::array);
  require(offsets.size() == 2, "'{}' has {} offsets instead of 2", name, offsets.size());
  entry.begin = parse_count(name, offsets[0]);
  entry.end = parse_count(name, offsets[1]);
  require(entry.begin <= entry.end && entry.end - entry.begin == bytes_of(entry),
          "'{}' takes {} bytes by its type and shape [{}], but its offsets are {}..{}", name,
          bytes_of(entry), fmt::join(entry.shape, ", "), entry.begin, entry.end);
  return entry;
}

std::map<std::string, std::string> parse_metadata(const json& value) {
  require(value.is_object(), "'{}' is not an object", kMetadata);
  std::map<std::string, std::string> metadata;
  for (const auto& [key, text] : value.items()) {
    require(text.is_string(), "'{}' in '{}' is not a text", key, kMetadata);
    metadata[key] = text.get<std::string>();
  }
  return metadata;
}

void check_coverage(std::vector<TensorEntry>& entries, int64_t data_size) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  int64_t covered = 0;
  for (const TensorEntry& entry : entries) {
    require(entry.begin >= covered,
            "'{}' begins at byte {} and overlaps the tensor before it, which ends at {}",
            entry.name, entry.begin, covered);
    require(entry.begin == covered, "the bytes {}..{} before '{}' belong to no tensor", covered,
            entry.begin, entry.name);
    covered = entry.end;
  }
  require(covered <= data_size, "the tensors take {} bytes but the file has only {}: it is cut off",
          covered, data_size);
  require(covered == data_size, "it goes on for {} after the last tensor",
          counted(data_size - covered, "byte"));
}

}  // namespace

const char* dtype_name(at::ScalarType dtype) {
  for (const auto& [name, type] : kTypes) {
    if (dtype == type) return name;
  }
  return nullptr;
}

std::string format_header(const SafetensorsHeader& header) {
  ordered_json root = ordered_json::object();
  if (!header.metadata.empty()) root[kMetadata] = header.metadata;
  for (const TensorEntry& entry : header.entries) {
    require(entry.name != kMetadata, "a tensor must not be called '{}'", kMetadata);
    root[entry.name] = {{"dtype", dtype_name(entry.dtype)},
                        {"shape", entry.shape},
                        {"data_offsets", {entry.begin, entry.end}}};
  }
  try {
    std::string text = root.dump();
    text.resize((text.size() + 7) / 8 * 8, ' ');
    return text;
  } catch (const json::exception& e) {
    throw malformed("a name or a metadata text is not valid UTF-8 ({})", e.what());
  }
}

SafetensorsHeader parse_header(std::string_view text, int64_t data_size) {
  // The parser takes it for the end.
  require(text.find('\0') == std::string_view::npos, "its header has a byte 0");
  json root;
  try {
    root = parse_strictly(text);
  } catch (const json::exception& e) {
    throw malformed("its header is not valid JSON ({})", e.what());
  }
  require(root.is_object(), "its header is not a JSON object");
  SafetensorsHeader header;
  for (const auto& [name, value] : root.items()) {
    if (name == kMetadata) {
      header.metadata = parse_metadata(value);
    } else {
      header.entries.push_back(parse_entry(name, value));
    }
  }
  check_coverage(header.entries, data_size);
  return header;
}

}  // namespace tensorpack::detail
