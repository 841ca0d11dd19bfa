// SPDX-License-Identifier: Apache-2.0
// A file that several threads read at once.
#pragma once

#include <cstdint>
#include <filesystem>

namespace tensorpack {

/// A file open for reading. It has no position, so that any number of threads may read from it.
class InputFile {
 public:
  /// Throws std::system_error for what cannot be opened or is not a regular file.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// When it was opened.
  int64_t size() const { return size_; }

  /// Reads `count` bytes that begin at `offset`; false if there are fewer or they cannot be read.
  [[nodiscard]] bool read(int64_t offset, void* bytes, int64_t count) const;

 private:
  int fd_;
  int64_t size_ = 0;
};

}  // namespace tensorpack
