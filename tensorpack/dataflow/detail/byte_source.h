// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

namespace tensorpack::detail {

/// Reads the bytes of a file, decompressing it if it is gzipped.
class ByteSource {
 public:
  /// Throws Error if the file cannot be opened, or is gzipped and the library has no zlib.
  explicit ByteSource(const std::filesystem::path& path);
  ~ByteSource();

  /// Reads up to `count` bytes, and fewer only if the file ends there. Throws Error if it is
  /// damaged, as its checksum tells at its end, or has no end.
  int64_t read(void* to, int64_t count);

  /// More bytes than this cannot be in a file of its size, packed or not.
  int64_t most_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorpack::detail
