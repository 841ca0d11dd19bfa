// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/utils/fs.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <ostream>
#include <random>
#include <streambuf>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorpack/utils/env.h"
#include "tensorpack/utils/error.h"

namespace tensorpack {

namespace fs = std::filesystem;

namespace {

Error write_error(const fs::path& path, int code) {
  return make_error("write_file_atomically",
                    "cannot write '{}': {}. Check that its directory exists, is writable and has "
                    "free space.",
                    path.string(), std::strerror(code));
}

// Closes its descriptor, so that no path out of a function leaks it.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  bool close() { return fd_ < 0 || ::close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// A stream buffer over a descriptor: std::ofstream hides both the descriptor, which fsync needs,
// and the reason of a failure.
class DescriptorBuffer : public std::streambuf {
 public:
  explicit DescriptorBuffer(int fd) : fd_(fd) { setp(buffer_.data(), buffer_.data() + kSize); }

  int error() const { return error_; }

 protected:
  int sync() override { return flush_buffer() ? 0 : -1; }

  int_type overflow(int_type c) override {
    if (!flush_buffer()) return traits_type::eof();
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    return sputc(traits_type::to_char_type(c));
  }

  std::streamsize xsputn(const char* data, std::streamsize size) override {
    if (size < epptr() - pptr()) return std::streambuf::xsputn(data, size);
    return flush_buffer() && write_all(data, static_cast<std::size_t>(size)) ? size : 0;
  }

 private:
  static constexpr std::size_t kSize = 1 << 16;

  bool flush_buffer() {
    const auto pending = static_cast<std::size_t>(pptr() - pbase());
    setp(buffer_.data(), buffer_.data() + kSize);
    return write_all(buffer_.data(), pending);
  }

  bool write_all(const char* data, std::size_t size) {
    while (size > 0 && error_ == 0) {
      const ssize_t written = ::write(fd_, data, size);
      if (written < 0) {
        if (errno != EINTR) error_ = errno;
        continue;
      }
      data += written;
      size -= static_cast<std::size_t>(written);
    }
    return error_ == 0;
  }

  int fd_;
  int error_ = 0;
  std::array<char, kSize> buffer_;
};

// Removes the temporary file unless it was renamed.
struct Removal {
  const fs::path& path;
  bool armed = true;
  ~Removal() {
    std::error_code ignored;
    if (armed) fs::remove(path, ignored);
  }
};

constexpr std::string_view kTemporary = ".tmp.";

// Not by the number of the process, which is the same after every restart of a container.
fs::path temporary_beside(const fs::path& path) {
  std::random_device random;
  return path.parent_path() /
         fmt::format(".{}{}{:08x}{:08x}", path.filename().string(), kTemporary, random(), random());
}

// Creates a file that nobody else has, and marks it as in use for as long as it is open.
int create_exclusively(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd >= 0) ::flock(fd, LOCK_EX | LOCK_NB);
  return fd;
}

bool is_in_use(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  return fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

// Makes the rename itself durable. Some file systems cannot sync a directory: not an error.
void sync_directory(const fs::path& directory) { sync_file(directory.empty() ? "." : directory); }

}  // namespace

void sync_file(const fs::path& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() >= 0) ::fsync(fd.get());
}

void write_file_atomically(const fs::path& path, const std::function<void(std::ostream&)>& write) {
  const fs::path temporary = temporary_beside(path);
  Descriptor fd(create_exclusively(temporary));
  if (fd.get() < 0) throw write_error(path, errno);
  Removal removal{temporary};

  DescriptorBuffer buffer(fd.get());
  std::ostream stream(&buffer);
  write(stream);
  stream.flush();
  if (!stream) throw write_error(path, buffer.error() != 0 ? buffer.error() : EIO);
  if (::fsync(fd.get()) != 0 || !fd.close()) throw write_error(path, errno);
  if (::rename(temporary.c_str(), path.c_str()) != 0) throw write_error(path, errno);
  removal.armed = false;
  sync_directory(path.parent_path());
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  write_file_atomically(path, [bytes](std::ostream& out) {
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  });
}

void remove_stale_temporaries(const fs::path& dir) {
  std::error_code ignored;
  std::vector<fs::path> stale;
  for (const auto& file : fs::directory_iterator(dir, ignored)) {
    const std::string name = file.path().filename().string();
    const bool is_temporary = name.starts_with(".") && name.find(kTemporary) != std::string::npos;
    if (is_temporary && file.is_regular_file(ignored) && !is_in_use(file.path())) {
      stale.push_back(file.path());
    }
  }
  for (const fs::path& path : stale) fs::remove(path, ignored);
}

std::string read_file(const fs::path& path) {
  const auto fail = [&path] {
    return make_error("read_file", "cannot read '{}': {}. Check the path and its permissions.",
                      path.string(), std::strerror(errno));
  };
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) throw fail();
  // Not by the file's size, which files in /proc do not tell.
  std::string contents;
  std::array<char, 1 << 16> chunk;
  while (true) {
    const ssize_t got = ::read(fd.get(), chunk.data(), chunk.size());
    if (got == 0) return contents;
    if (got > 0) {
      contents.append(chunk.data(), static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      throw fail();
    }
  }
}

std::string timestamp() {
  return fmt::format("{:%m%d-%H%M%S}", fmt::localtime(std::time(nullptr)));
}

fs::path dataset_path(std::string_view name) {
  fs::path root;
  if (const auto directory = env("TENSORPACK_DATASET")) {
    root = *directory;
  } else {
    const auto home = env("HOME");
    TP_CHECK(home, "dataset_path",
             "neither TENSORPACK_DATASET nor HOME is set. Set TENSORPACK_DATASET to the directory "
             "of your datasets.");
    root = fs::path(*home) / "tensorpack_data";
  }
  return name.empty() ? root : root / name;
}

fs::path cache_path(std::string_view name) {
  const fs::path below = fs::path("tensorpack") / name;
  if (const auto cache = env("XDG_CACHE_HOME")) return *cache / below;
  if (const auto home = env("HOME")) return fs::path(*home) / ".cache" / below;
  return {};
}

TempDir::TempDir() {
  std::string pattern = (fs::temp_directory_path() / "tensorpack.XXXXXX").string();
  TP_CHECK(::mkdtemp(pattern.data()) != nullptr, "TempDir",
           "cannot create a directory like '{}': {}. Set TMPDIR to a writable directory.", pattern,
           std::strerror(errno));
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace tensorpack
