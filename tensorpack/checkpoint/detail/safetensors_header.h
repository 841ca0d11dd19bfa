// SPDX-License-Identifier: Apache-2.0
// The header of a safetensors file as a value, apart from the bytes it describes.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/checkpoint/detail/malformed.h"

namespace tensorpack::detail {

/// Where one tensor lies. Offsets count from the end of the header.
struct TensorEntry {
  std::string name = {};
  at::ScalarType dtype = at::ScalarType::Float;
  std::vector<int64_t> shape = {};
  int64_t begin = 0;
  int64_t end = 0;
};

struct SafetensorsHeader {
  /// In the order of the data.
  std::vector<TensorEntry> entries = {};
  std::map<std::string, std::string> metadata = {};
};

/// The format's name of a type, or nullptr if it has none.
const char* dtype_name(at::ScalarType dtype);

/// The JSON text, padded with spaces to a multiple of 8 bytes. Throws Malformed for a name that the
/// format cannot hold.
std::string format_header(const SafetensorsHeader& header);

/// Parses a header and checks that its tensors cover `data_size` bytes exactly: no overlaps, no
/// holes, nothing outside. Throws Malformed.
SafetensorsHeader parse_header(std::string_view text, int64_t data_size);

}  // namespace tensorpack::detail
