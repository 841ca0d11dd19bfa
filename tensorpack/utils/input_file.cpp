// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace tensorpack {

// O_NONBLOCK: to open a pipe is to wait for who writes to it.
InputFile::InputFile(const std::filesystem::path& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category());
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    throw std::system_error(S_ISDIR(status.st_mode) ? EISDIR : EINVAL, std::generic_category());
  }
  size_ = status.st_size;
}

InputFile::~InputFile() { ::close(fd_); }

bool InputFile::read(int64_t offset, void* bytes, int64_t count) const {
  auto* to = static_cast<char*>(bytes);
  while (count > 0) {
    const ssize_t got = ::pread(fd_, to, static_cast<size_t>(count), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    to += got;
    offset += got;
    count -= got;
  }
  return true;
}

}  // namespace tensorpack
