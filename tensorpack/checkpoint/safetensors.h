// SPDX-License-Identifier: Apache-2.0
// The safetensors format: a JSON header with names, types and shapes, then the bytes of the
// tensors. It can be read from Python, and reading it runs no code.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tensorpack/graph/named_tensors.h"

namespace tensorpack {

namespace detail {
struct SafetensorsHeader;
}

/// Free texts stored beside the tensors.
using Metadata = std::map<std::string, std::string>;

struct SafetensorsFile {
  NamedTensors tensors = {};
  Metadata metadata = {};
  /// Of the tensors, by name; if they were asked for.
  std::map<std::string, uint64_t> checksums = {};
};

struct ReadSafetensorsOptions {
  /// Whether to take checksums, which costs least while the bytes are read.
  bool checksums = false;
};

/// Writes `tensors` to `path`, all or nothing; the same input always gives the same bytes.
///
/// Takes tensors of any device and strides, of type F64, F32, F16, BF16, I64, I32, I16, I8, U8 or
/// BOOL. Throws Error for any other and where the file cannot be written.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const Metadata& metadata = {});

/// Reads a whole file into CPU tensors, on as many threads as libtorch may use. Throws Error that
/// names the file and what is wrong with it.
SafetensorsFile read_safetensors(const std::filesystem::path& path,
                                 ReadSafetensorsOptions options = {});

/// Reads what a file says of its tensors, but not the tensors; for which include
/// tensorpack/checkpoint/detail/safetensors_header.h. Throws Error as read_safetensors() does.
detail::SafetensorsHeader read_safetensors_header(const std::filesystem::path& path);

}  // namespace tensorpack
