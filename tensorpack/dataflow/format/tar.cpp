// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/tar.h"

#include <fmt/ranges.h>
#include <torch/types.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <ostream>

#include "tensorpack/dataflow/detail/byte_source.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlock = 512;

// The header of a file in an archive, as POSIX lays it out.
struct TarHeader {
  char name[100];
  char mode[8];
  char owner[8];
  char group[8];
  char size[12];
  char time[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[8];
  char owner_name[32];
  char group_name[32];
  char device[16];
  char prefix[155];
  char unused[12];
};
static_assert(sizeof(TarHeader) == kBlock);

template <size_t N>
std::string text_of(const char (&field)[N]) {
  return {field, strnlen(field, N)};
}

// The sum of all bytes of the header, with blanks in place of the sum itself.
uint32_t checksum_of(TarHeader header) {
  std::memset(header.checksum, ' ', sizeof(header.checksum));
  uint32_t sum = 0;
  for (const uint8_t byte : std::bit_cast<std::array<uint8_t, kBlock>>(header)) sum += byte;
  return sum;
}

int64_t padding_of(int64_t size) { return (kBlock - size % kBlock) % kBlock; }

struct Member {
  std::string name;
  int64_t offset = 0;  // of its header, for messages
  at::Tensor content;
};

// Reads the files of an archive one after the other.
class TarReader {
 public:
  explicit TarReader(const fs::path& path) : path_(path), source_(path) {}

  // The next ordinary file; nullopt at the end of the archive.
  std::optional<Member> next() {
    std::string long_name;
    while (true) {
      const int64_t offset = offset_;
      TarHeader header;
      const int64_t got = source_.read(&header, kBlock);
      offset_ += got;
      check(got == kBlock, offset,
            got == 0 ? "is cut off: the empty block that ends an archive is missing"
                     : "is cut off in a header");
      if (header.name[0] == '\0') {
        check_end(offset);
        return std::nullopt;
      }
      check(parse(header.checksum, offset) == checksum_of(header), offset,
            "has a header with a wrong checksum");
      const int64_t size = parse(header.size, offset);
      at::Tensor content = read_content(size, offset);
      if (header.type == 'L') {
        const std::string_view name = bytes_view(content);
        long_name = name.substr(0, name.find('\0'));
      } else if (header.type == 'x') {
        long_name = path_in(bytes_view(content));
      } else if (header.type == '0' || header.type == '\0') {
        const std::string prefix = text_of(header.prefix);
        std::string name = (prefix.empty() ? "" : prefix + "/") + text_of(header.name);
        return Member{long_name.empty() ? name : long_name, offset, std::move(content)};
      }
    }
  }

 private:
  // Empty blocks alone follow the first. A compressed archive has its checksum behind them.
  void check_end(int64_t offset) {
    std::array<char, kBlock> block = {};
    while (const int64_t got = source_.read(block.data(), kBlock)) {
      check(std::all_of(block.begin(), block.begin() + got, [](char byte) { return byte == 0; }),
            offset, "goes on after the empty block that ends an archive");
    }
  }

  at::Tensor read_content(int64_t size, int64_t offset) {
    check(size <= source_.most_bytes(), offset, "claims a file larger than the archive");
    at::Tensor content = at::empty({size}, at::kByte);
    std::array<char, kBlock> padding;
    const int64_t pad = padding_of(size);
    const int64_t got = source_.read(content.data_ptr(), size) + source_.read(padding.data(), pad);
    check(got == size + pad, offset, "is cut off in the file that begins here");
    offset_ += got;
    return content;
  }

  template <size_t N>
  int64_t parse(const char (&octal)[N], int64_t offset) const {
    int64_t value = 0;
    for (const char digit : text_of(octal)) {
      if (digit == ' ') continue;
      check(digit >= '0' && digit <= '7', offset, "has a header with a number that is none");
      value = value * 8 + (digit - '0');
    }
    return value;
  }

  // The name in an extended header, which has lines "<length> path=<name>\n".
  static std::string path_in(std::string_view lines) {
    const size_t key = lines.find(" path=");
    if (key == std::string_view::npos) return "";
    const std::string_view value = lines.substr(key + 6);
    return std::string(value.substr(0, value.find('\n')));
  }

  void check(bool condition, int64_t offset, const char* what) const {
    TP_CHECK(condition, "TarShard", "'{}' {} at offset {}. Get the file again.", path_.string(),
             what, offset);
  }

  fs::path path_;
  detail::ByteSource source_;
  int64_t offset_ = 0;
};

// "dir/0001.seg.png" is the part "seg.png" of "dir/0001".
std::pair<std::string, std::string> split(const std::string& name) {
  const size_t file = name.rfind('/') + 1;  // 0 if there is none
  const size_t dot = name.find('.', file);
  if (dot == std::string::npos) return {name, ""};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

void write_member(std::ostream& out, const std::string& name, std::string_view content) {
  TarHeader header = {};
  const auto put = [](char* to, size_t room, const std::string& text) {
    std::memcpy(to, text.data(), std::min(text.size(), room));
  };
  put(header.name, sizeof(header.name), name);
  put(header.mode, sizeof(header.mode), "0000644");
  put(header.owner, sizeof(header.owner), "0000000");
  put(header.group, sizeof(header.group), "0000000");
  put(header.size, sizeof(header.size), fmt::format("{:011o}", content.size()));
  put(header.time, sizeof(header.time), "00000000000");
  put(header.magic, sizeof(header.magic), std::string("ustar\00000", 8));
  header.type = '0';
  put(header.checksum, sizeof(header.checksum),
      fmt::format("{:06o}", checksum_of(header)) + std::string("\0 ", 2));
  out.write(reinterpret_cast<const char*>(&header), kBlock);
  out << content << std::string(padding_of(std::ssize(content)), '\0');
}

}  // namespace

struct TarShard::Impl {
  fs::path path;
  std::vector<std::string> extensions;
  std::unique_ptr<TarReader> reader;
  std::optional<Member> ahead = {};  // the first file of the next datapoint
  std::string key = {};

  void start() {
    reader = std::make_unique<TarReader>(path);
    ahead = reader->next();
  }

  DataPoint take() {
    DataPoint point{std::vector<at::Tensor>(extensions.size())};
    key = split(ahead->name).first;
    const int64_t offset = ahead->offset;
    for (; ahead && split(ahead->name).first == key; ahead = reader->next()) {
      const std::string extension = split(ahead->name).second;
      for (size_t i = 0; i < extensions.size(); ++i) {
        if (extensions[i] == extension) point[i] = ahead->content;
      }
    }
    for (size_t i = 0; i < extensions.size(); ++i) {
      TP_CHECK(point[i].defined(), "TarShard",
               "'{}': there is no '{}.{}' among the files at offset {}. Check the extensions, or "
               "that the files of a datapoint lie together.",
               path.string(), key, extensions[i], offset);
    }
    return point;
  }
};

TarShard::TarShard(fs::path path, std::vector<std::string> extensions)
    : impl_(new Impl{std::move(path), std::move(extensions), nullptr}) {
  TP_CHECK(!impl_->extensions.empty(), "TarShard",
           "there are no extensions. Name those of the files that make a datapoint.");
  impl_->start();
}
TarShard::TarShard(TarShard&&) noexcept = default;
TarShard::~TarShard() = default;

void TarShard::start(int64_t /*pass*/) { impl_->start(); }

std::optional<DataPoint> TarShard::next() {
  if (!impl_->ahead) return std::nullopt;
  return impl_->take();
}

const std::string& TarShard::key() const { return impl_->key; }

int64_t save_tar(DataFlow& flow, const fs::path& path, const std::vector<std::string>& extensions) {
  int64_t count = 0;
  write_file_atomically(path, [&](std::ostream& out) {
    for (; const auto point = flow.next(); ++count) {
      TP_CHECK(point->size() == extensions.size(), "save_tar",
               "datapoint {} has {}, but is given {}. Pass one for each.", count,
               counted(std::ssize(*point), "component"),
               counted(std::ssize(extensions), "extension"));
      for (size_t i = 0; i < extensions.size(); ++i) {
        write_member(out, fmt::format("{:08}.{}", count, extensions[i]), bytes_view((*point)[i]));
      }
    }
    out << std::string(2 * kBlock, '\0');
  });
  return count;
}

}  // namespace tensorpack
