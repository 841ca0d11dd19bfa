// SPDX-License-Identifier: Apache-2.0
// Preloaded into a training, it keeps a copy of the log directory as a power cut would leave it:
// with what was synchronized to the disk, and nothing else.
//
//   LD_PRELOAD=libpower_cut.so POWER_CUT_DIR=<log directory> POWER_CUT_COPY=<the copy> program
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <string>

namespace {

namespace fs = std::filesystem;

ino_t inode_of(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

std::string contents_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Disk {
 public:
  Disk(fs::path dir, fs::path copy) : dir_(std::move(dir)), copy_(std::move(copy)) {
    // What was there when the power came back is on the disk.
    fs::create_directories(copy_);
    for (const auto& file : fs::directory_iterator(dir_)) {
      if (file.is_regular_file()) synchronized_[inode_of(file)] = contents_of(file);
    }
    list();
  }

  void synchronize(const fs::path& path) {
    if (path == dir_) list();
    if (path.parent_path() != dir_) return;
    const ino_t inode = inode_of(path);
    synchronized_[inode] = contents_of(path);
    for (const auto& [name, listed] : names_) {
      if (listed == inode) write(name);
    }
  }

 private:
  // Names are on the disk when the directory is synchronized.
  void list() {
    std::map<std::string, ino_t> names;
    for (const auto& file : fs::directory_iterator(dir_)) {
      if (file.is_regular_file()) names[file.path().filename()] = inode_of(file);
    }
    for (const auto& [name, inode] : names_) {
      if (!names.contains(name)) fs::remove(copy_ / name);
    }
    names_ = std::move(names);
    for (const auto& [name, inode] : names_) write(name);
  }

  // By renaming, so that a kill in the middle of it does not spoil the copy.
  void write(const std::string& name) {
    const fs::path unfinished = copy_.string() + ".unfinished";
    std::ofstream(unfinished, std::ios::binary) << synchronized_[names_[name]];
    fs::rename(unfinished, copy_ / name);
  }

  fs::path dir_;
  fs::path copy_;
  std::map<ino_t, std::string> synchronized_;
  std::map<std::string, ino_t> names_;  // those on the disk
};

void note(int fd) {
  static std::mutex mutex;
  static Disk* disk = nullptr;
  const char* dir = std::getenv("POWER_CUT_DIR");
  const char* copy = std::getenv("POWER_CUT_COPY");
  if (dir == nullptr || copy == nullptr) return;
  const fs::path path = fs::read_symlink("/proc/self/fd/" + std::to_string(fd));
  const std::lock_guard lock(mutex);
  if (disk == nullptr && fs::is_directory(dir)) disk = new Disk(dir, copy);
  if (disk != nullptr) disk->synchronize(path);
}

}  // namespace

extern "C" int fsync(int fd) {
  const auto result = static_cast<int>(::syscall(SYS_fsync, fd));
  if (result == 0) note(fd);
  return result;
}
