// SPDX-License-Identifier: Apache-2.0
#include "programs/tp/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tensorpack/utils/error.h"

namespace tensorpack {

DirectoryLock::DirectoryLock(const std::filesystem::path& directory)
    : fd_(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  TP_CHECK(fd_ >= 0, "tp run", "'{}' cannot be opened: {}.", directory.string(),
           std::strerror(errno));
  while (flock(fd_, LOCK_EX) != 0 && errno == EINTR) {
  }
}

DirectoryLock::~DirectoryLock() { close(fd_); }

}  // namespace tensorpack
