// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/byte_source.h"

#ifdef TENSORPACK_HAS_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>

#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

#ifdef TENSORPACK_HAS_ZLIB

// zlib reads plain files too.
struct ByteSource::Impl {
  explicit Impl(const std::filesystem::path& path) : path(path), file(gzopen(path.c_str(), "rb")) {
    if (file) gzbuffer(file, 1 << 18);
  }
  ~Impl() {
    if (file) gzclose(file);
  }
  bool is_open() const { return file != nullptr; }

  int64_t read(char* to, int64_t count) {
    constexpr int64_t kMaxCall = 1 << 30;
    int64_t total = 0;
    while (total < count) {
      const int got =
          gzread(file, to + total, static_cast<unsigned>(std::min(count - total, kMaxCall)));
      if (got <= 0) break;
      total += got;
    }
    if (total < count) check_end();
    return total;
  }

  // zlib tells nothing of a wrong checksum or a missing end in what it returns.
  void check_end() const {
    int code = Z_OK;
    const char* reason = gzerror(file, &code);
    if (code == Z_ERRNO) reason = std::strerror(errno);
    TP_CHECK(code == Z_OK || code == Z_STREAM_END, "read",
             "'{}' is damaged or cut off: {}. Get the file again.", path.string(), reason);
  }

  std::filesystem::path path;
  gzFile file;
};

#else

struct ByteSource::Impl {
  explicit Impl(const std::filesystem::path& path) : path(path), file(path, std::ios::binary) {
    TP_CHECK(path.extension() != ".gz", "read",
             "'{}' is compressed, but the library was built "
             "without zlib. Unpack it with gunzip, or build again with zlib installed.",
             path.string());
  }
  bool is_open() const { return file.is_open(); }

  int64_t read(char* to, int64_t count) {
    file.read(to, count);
    TP_CHECK(!file.bad(), "read", "'{}' cannot be read. Get the file again.", path.string());
    return file.gcount();
  }

  std::filesystem::path path;
  std::ifstream file;
};

#endif

ByteSource::ByteSource(const std::filesystem::path& path) {
  errno = 0;
  impl_ = std::make_unique<Impl>(path);
  TP_CHECK(impl_->is_open(), "read", "cannot open '{}': {}. Check the path and its permissions.",
           path.string(), std::strerror(errno));
}

ByteSource::~ByteSource() = default;

int64_t ByteSource::most_bytes() const {
  constexpr int64_t kDeflate = 1032;  // no more can be got out of a byte
  std::error_code unknown;
  const auto size = std::filesystem::file_size(impl_->path, unknown);
  return unknown ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(size) * kDeflate;
}

int64_t ByteSource::read(void* to, int64_t count) {
  return impl_->read(static_cast<char*>(to), count);
}

}  // namespace tensorpack::detail
