// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/safetensors.h"

#include <fmt/ostream.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <tuple>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;
using detail::require;
using detail::SafetensorsHeader;
using detail::TensorEntry;

constexpr int64_t kLengthBytes = 8;
// What the format's own reader accepts. It keeps damaged lengths from becoming allocations.
constexpr int64_t kMaxHeader = 100'000'000;

SafetensorsHeader lay_out(const fs::path& path, const NamedTensors& tensors,
                          const Metadata& metadata) {
  SafetensorsHeader header{.metadata = metadata};
  for (const auto& [name, tensor] : tensors) {
    TP_CHECK(tensor.defined(), "write_safetensors",
             "'{}' is an undefined tensor, so '{}' cannot be written. Give it a value.", name,
             path.string());
    TP_CHECK(
        detail::dtype_name(tensor.scalar_type()) && tensor.layout() == at::kStrided,
        "write_safetensors",
        "'{}' is of type {} and layout {}, which the format cannot hold. Convert it to a dense "
        "tensor of a floating point, integer or boolean type.",
        name, c10::toString(tensor.scalar_type()), fmt::streamed(tensor.layout()));
    header.entries.push_back(
        {.name = name, .dtype = tensor.scalar_type(), .shape = tensor.sizes().vec()});
  }
  // Large elements first: then every tensor is aligned to its element size.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return c10::elementSize(a.dtype) > c10::elementSize(b.dtype);
  });
  int64_t offset = 0;
  for (TensorEntry& entry : header.entries) {
    entry.begin = offset;
    entry.end = offset += static_cast<int64_t>(tensors.at(entry.name).nbytes());
  }
  return header;
}

std::string header_text(const fs::path& path, const SafetensorsHeader& header) {
  try {
    return detail::format_header(header);
  } catch (const detail::Malformed& e) {
    throw make_error("write_safetensors", "cannot write '{}': {}. Rename it.", path.string(),
                     e.what());
  }
}

std::array<char, kLengthBytes> little_endian(uint64_t value) {
  std::array<char, kLengthBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(value >> (8 * i));
  return bytes;
}

uint64_t from_little_endian(const std::array<char, kLengthBytes>& bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  return value;
}

at::Tensor read_tensor(std::istream& in, const TensorEntry& entry) {
  at::Tensor tensor = at::empty(entry.shape, entry.dtype);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  const int64_t count = entry.end - entry.begin;
  require(count == 0 || in.read(bytes, count).good(), "the bytes of '{}' cannot be read",
          entry.name);
  // Any other byte in a bool is undefined behaviour in whatever reads it.
  require(entry.dtype != at::kBool ||
              std::all_of(bytes, bytes + count, [](char byte) { return byte == 0 || byte == 1; }),
          "'{}' is of type BOOL and has bytes other than 0 and 1", entry.name);
  return tensor;
}

// Leaves the stream where the bytes of the tensors begin.
SafetensorsHeader read_header(std::istream& in, int64_t file_size) {
  require(file_size >= kLengthBytes, "it has only {} bytes", file_size);
  std::array<char, kLengthBytes> length_bytes;
  require(in.read(length_bytes.data(), kLengthBytes).good(), "it cannot be read");
  const uint64_t length = from_little_endian(length_bytes);
  require(length <= static_cast<uint64_t>(std::min(kMaxHeader, file_size - kLengthBytes)),
          "it claims a header of {} bytes, more than the file of {} bytes or the format allows",
          length, file_size);
  std::string text(length, '\0');
  require(length == 0 || in.read(text.data(), static_cast<std::streamsize>(length)).good(),
          "its header cannot be read");
  return detail::parse_header(text, file_size - kLengthBytes - static_cast<int64_t>(length));
}

// Opens a file and has `read` read it.
template <typename Read>
auto read_file_by(const fs::path& path, Read read) {
  std::error_code not_a_file;
  const auto size = fs::file_size(path, not_a_file);
  std::ifstream in(path, std::ios::binary);
  TP_CHECK(!not_a_file && in, "read_safetensors",
           "cannot open '{}': {}. Check the path and its permissions.", path.string(),
           not_a_file ? not_a_file.message() : std::strerror(errno));
  try {
    return read(in, static_cast<int64_t>(size));
  } catch (const detail::Malformed& e) {
    throw make_error(
        "read_safetensors",
        "'{}' is not a valid safetensors file: {}. It is damaged or of another format; "
        "use another file.",
        path.string(), e.what());
  }
}

}  // namespace

void write_safetensors(const fs::path& path, const NamedTensors& tensors,
                       const Metadata& metadata) {
  const SafetensorsHeader header = lay_out(path, tensors, metadata);
  const std::string text = header_text(path, header);
  write_file_atomically(path, [&](std::ostream& out) {
    const auto length = little_endian(text.size());
    out.write(length.data(), length.size());
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    for (const TensorEntry& entry : header.entries) {
      const auto tensor =
          tensors.at(entry.name).detach().resolve_conj().resolve_neg().to(at::kCPU).contiguous();
      out.write(static_cast<const char*>(tensor.data_ptr()), entry.end - entry.begin);
    }
  });
}

SafetensorsFile read_safetensors(const fs::path& path) {
  return read_file_by(path, [](std::istream& in, int64_t file_size) {
    SafetensorsHeader header = read_header(in, file_size);
    SafetensorsFile file{.metadata = std::move(header.metadata)};
    for (const TensorEntry& entry : header.entries) {
      file.tensors.emplace(entry.name, read_tensor(in, entry));
    }
    return file;
  });
}

SafetensorsHeader read_safetensors_header(const fs::path& path) {
  return read_file_by(path, read_header);
}

}  // namespace tensorpack
