// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/safetensors.h"

#include <fmt/ostream.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <system_error>
#include <vector>

#include "tensorpack/checkpoint/detail/safetensors_header.h"
#include "tensorpack/checkpoint/detail/tensor_checksum.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/input_file.h"
#include "tensorpack/utils/share_work.h"
#include "tensorpack/utils/string.h"

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

// Reads a tensor's bytes in pieces that are still in the cache when they are looked at.
uint64_t read_tensor(const InputFile& file, int64_t data_begin, const TensorEntry& entry,
                     at::Tensor& tensor, bool with_checksum) {
  constexpr int64_t kPiece = 128 << 10;
  Xxh64 checksum = detail::begin_tensor_checksum(entry.dtype, entry.shape);
  auto* bytes = static_cast<char*>(tensor.data_ptr());
  for (int64_t at = entry.begin; at < entry.end; at += kPiece) {
    const int64_t count = std::min(kPiece, entry.end - at);
    require(file.read(data_begin + at, bytes, count), "the bytes of '{}' cannot be read",
            entry.name);
    // Any other byte in a bool is undefined behaviour in whatever reads it.
    require(entry.dtype != at::kBool ||
                std::all_of(bytes, bytes + count, [](char byte) { return byte == 0 || byte == 1; }),
            "'{}' is of type BOOL and has bytes other than 0 and 1", entry.name);
    if (with_checksum) checksum.add({bytes, static_cast<size_t>(count)});
    bytes += count;
  }
  return checksum.value();
}

struct HeaderInFile {
  SafetensorsHeader header = {};
  int64_t data_begin = 0;
};

HeaderInFile read_header(const InputFile& file) {
  require(file.size() >= kLengthBytes, "it has only {}", counted(file.size(), "byte"));
  std::array<char, kLengthBytes> length_bytes;
  require(file.read(0, length_bytes.data(), kLengthBytes), "it cannot be read");
  const uint64_t length = from_little_endian(length_bytes);
  require(length <= static_cast<uint64_t>(std::min(kMaxHeader, file.size() - kLengthBytes)),
          "it claims a header of {} bytes, more than the file of {} bytes or the format allows",
          length, file.size());
  const auto size = static_cast<int64_t>(length);
  std::string text(length, '\0');
  require(file.read(kLengthBytes, text.data(), size), "its header cannot be read");
  const int64_t data_begin = kLengthBytes + size;
  return {detail::parse_header(text, file.size() - data_begin), data_begin};
}

InputFile open_file(const fs::path& path) {
  try {
    return InputFile(path);
  } catch (const std::system_error& error) {
    throw make_error("read_safetensors",
                     "cannot open '{}': {}. Check the path and its permissions.", path.string(),
                     error.code().message());
  }
}

// Opens a file and has `read` read it.
template <typename Read>
auto read_file_by(const fs::path& path, Read read) {
  const InputFile file = open_file(path);
  try {
    return read(file);
  } catch (const detail::Malformed& e) {
    throw make_error(
        "read_safetensors",
        "'{}' is not a valid safetensors file: {}. It is damaged or of another format; "
        "use another file.",
        path.string(), e.what());
  }
}

// The largest first, so that no thread is left with one when the others are done.
std::vector<size_t> by_size(const std::vector<TensorEntry>& entries) {
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto size = [&](size_t i) { return entries[i].end - entries[i].begin; };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return size(a) > size(b); });
  return order;
}

SafetensorsFile read_tensors(const InputFile& in, bool with_checksums) {
  auto [header, data_begin] = read_header(in);
  const std::vector<TensorEntry>& entries = header.entries;
  const std::vector<size_t> order = by_size(entries);
  std::vector<at::Tensor> tensors(entries.size());
  std::vector<uint64_t> checksums(entries.size());
  const auto megabytes = static_cast<size_t>(in.size() >> 20);
  share_work(entries.size(), megabytes, [&, begin = data_begin](size_t turn) {
    const size_t i = order[turn];
    tensors[i] = at::empty(entries[i].shape, entries[i].dtype);
    checksums[i] = read_tensor(in, begin, entries[i], tensors[i], with_checksums);
  });
  SafetensorsFile file{.metadata = std::move(header.metadata)};
  for (size_t i = 0; i < entries.size(); ++i) {
    file.tensors.emplace(entries[i].name, std::move(tensors[i]));
    if (with_checksums) file.checksums.emplace(entries[i].name, checksums[i]);
  }
  return file;
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

SafetensorsFile read_safetensors(const fs::path& path, ReadSafetensorsOptions options) {
  return read_file_by(path,
                      [&](const InputFile& in) { return read_tensors(in, options.checksums); });
}

SafetensorsHeader read_safetensors_header(const fs::path& path) {
  return read_file_by(path, [](const InputFile& in) { return read_header(in).header; });
}

}  // namespace tensorpack
