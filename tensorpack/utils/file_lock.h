// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace tensorpack {

/// Holds a lock file until the end of the scope or of the process, however that comes.
class [[nodiscard]] FileLock {
 public:
  /// Takes the lock, creating the file if need be, and writes into it who holds it. Where the file
  /// system knows no locks it is taken all the same. Throws std::system_error if the file cannot be
  /// opened.
  explicit FileLock(const std::filesystem::path& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Who else has the lock, as "process 12 on host since 1231-235959"; nothing when it is ours.
  const std::optional<std::string>& other_holder() const { return other_holder_; }

 private:
  int fd_ = -1;
  std::optional<std::string> other_holder_;
};

}  // namespace tensorpack
