// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>

namespace tensorpack {

/// One process at a time writes into a directory; the others wait.
class [[nodiscard]] DirectoryLock {
 public:
  explicit DirectoryLock(const std::filesystem::path& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  int fd_;
};

}  // namespace tensorpack
