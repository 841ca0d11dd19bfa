// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

std::string this_process() {
  std::array<char, 256> host = {};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {} since {}", ::getpid(), host.data(), timestamp());
}

}  // namespace

FileLock::FileLock(const std::filesystem::path& path)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category());
  if (::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    other_holder_ = read_file(path);
    if (other_holder_->empty()) other_holder_ = "another process";
    return;
  }
  const std::string holder = this_process();
  const bool written = ::ftruncate(fd_, 0) == 0 && ::write(fd_, holder.data(), holder.size()) > 0;
  static_cast<void>(written);  // a full disk is no reason not to have the lock
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace tensorpack
