// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/detail/byte_source.h"

#ifdef TENSORPACK_HAS_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>
#include <vector>

#include "tensorpack/utils/error.h"

namespace tensorpack::detail {

#ifdef TENSORPACK_HAS_ZLIB

// Not gzread(), which takes bytes behind the compressed ones for no part of the file.
struct ByteSource::Impl {
  explicit Impl(const std::filesystem::path& path)
      : path(path), file(std::fopen(path.c_str(), "rb")), packed(file ? 1 << 18 : 0) {
    if (!is_open()) return;
    fill();
    is_gzip = stream.avail_in >= 2 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b;
    if (is_gzip) TP_ASSERT(inflateInit2(&stream, kOnlyGzip) == Z_OK);
  }
  ~Impl() {
    if (is_gzip) inflateEnd(&stream);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  bool is_open() const { return file != nullptr; }

  int64_t read(char* to, int64_t count) {
    int64_t total = 0;
    while (total < count) {
      const int64_t got =
          is_gzip ? unpack(to + total, count - total) : copy(to + total, count - total);
      if (got == 0) break;
      total += got;
    }
    return total;
  }

  std::filesystem::path path;

 private:
  static constexpr int kOnlyGzip = 16 + MAX_WBITS;

  struct Closer {
    void operator()(std::FILE* open) const { std::fclose(open); }
  };

  // False at the end of the file.
  bool fill() {
    if (stream.avail_in > 0) return true;
    stream.next_in = packed.data();
    stream.avail_in =
        static_cast<unsigned>(std::fread(packed.data(), 1, packed.size(), file.get()));
    TP_CHECK(!std::ferror(file.get()), "read", "'{}' cannot be read: {}. Get the file again.",
             path.string(), std::strerror(errno));
    return stream.avail_in > 0;
  }

  int64_t copy(char* to, int64_t count) {
    if (!fill()) return 0;
    const auto size = static_cast<unsigned>(std::min<int64_t>(count, stream.avail_in));
    std::memcpy(to, stream.next_in, size);
    stream.next_in += size;
    stream.avail_in -= size;
    return size;
  }

  // A file may be several that were compressed one by one. Zeros may follow, which fill a block.
  bool is_at_end() {
    while (is_member_whole && fill() && *stream.next_in == 0) {
      ++stream.next_in;
      --stream.avail_in;
    }
    return is_member_whole && !fill();
  }

  int64_t unpack(char* to, int64_t count) {
    const auto room = static_cast<unsigned>(std::min<int64_t>(count, 1 << 30));
    stream.next_out = reinterpret_cast<Bytef*>(to);
    stream.avail_out = room;
    while (stream.avail_out == room && !is_at_end()) {
      if (std::exchange(is_member_whole, false)) TP_ASSERT(inflateReset(&stream) == Z_OK);
      if (!fill()) throw damaged("unexpected end of file");
      const int code = inflate(&stream, Z_NO_FLUSH);
      if (code != Z_OK && code != Z_STREAM_END) {
        throw damaged(stream.msg != nullptr ? stream.msg : zError(code));
      }
      is_member_whole = code == Z_STREAM_END;
    }
    return room - stream.avail_out;
  }

  Error damaged(const char* reason) const {
    return make_error("read", "'{}' is damaged or cut off: {}. Get the file again.", path.string(),
                      reason);
  }

  std::unique_ptr<std::FILE, Closer> file;
  std::vector<Bytef> packed;
  z_stream stream = {};
  bool is_gzip = false;
  bool is_member_whole = false;  // the last byte of one was unpacked
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
