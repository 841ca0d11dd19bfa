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

  /// Reads up to `count` bytes. Fewer were read only if the file ends there or is damaged.
  int64_t read(void* to, int64_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tensorpack::detail
