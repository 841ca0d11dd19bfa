// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/checkpoint/detail/zip.h"

#ifdef TENSORPACK_HAS_ZLIB
#include <zlib.h>
#endif

#include <algorithm>
#include <istream>
#include <limits>
#include <ostream>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/string.h"

namespace tensorpack::detail {

#ifdef TENSORPACK_HAS_ZLIB

namespace {

constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr uint16_t kExtra64 = 1;
constexpr uint16_t kVersion64 = 45;
constexpr size_t kLocalSize = 30;
constexpr size_t kCentralSize = 46;
constexpr size_t kEndSize = 22;
constexpr size_t kEnd64Size = 56;
constexpr size_t kLocatorSize = 20;
// What a field of 32 or 16 bits says when its value stands in the extra field.
constexpr uint32_t kElsewhere32 = 0xffffffff;
constexpr uint16_t kElsewhere16 = 0xffff;

template <typename Integer>
Integer take(std::string_view& bytes) {
  require(bytes.size() >= sizeof(Integer), "its directory is cut off");
  uint64_t value = 0;
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  }
  bytes.remove_prefix(sizeof(Integer));
  return static_cast<Integer>(value);
}

std::string_view take_bytes(std::string_view& bytes, size_t count) {
  require(bytes.size() >= count, "its directory is cut off");
  const std::string_view taken = bytes.substr(0, count);
  bytes.remove_prefix(count);
  return taken;
}

template <typename Integer>
void put(std::string& bytes, Integer value) {
  for (size_t i = 0; i < sizeof(Integer); ++i) {
    bytes += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i));
  }
}

std::string read_at(std::istream& in, uint64_t offset, uint64_t count) {
  std::string bytes(count, '\0');
  in.clear();
  in.seekg(static_cast<std::streamoff>(offset));
  require(count == 0 || in.read(bytes.data(), static_cast<std::streamsize>(count)).good(),
          "its bytes {}..{} cannot be read", offset, offset + count);
  return bytes;
}

struct Directory {
  uint64_t entries = 0;
  uint64_t size = 0;
  uint64_t offset = 0;
};

Directory find_directory64(std::istream& in, uint64_t end) {
  require(end >= kLocatorSize, "its end is damaged");
  const std::string locator = read_at(in, end - kLocatorSize, kLocatorSize);
  std::string_view bytes = locator;
  require(take<uint32_t>(bytes) == kLocator64, "its end is damaged");
  take<uint32_t>(bytes);
  const auto offset = take<uint64_t>(bytes);
  require(end >= kEnd64Size && offset <= end - kEnd64Size, "its end is damaged");
  const std::string record = read_at(in, offset, kEnd64Size);
  bytes = record;
  require(take<uint32_t>(bytes) == kEnd64, "its end is damaged");
  take_bytes(bytes, 8 + 2 + 2 + 4 + 4 + 8);
  Directory directory;
  directory.entries = take<uint64_t>(bytes);
  directory.size = take<uint64_t>(bytes);
  directory.offset = take<uint64_t>(bytes);
  return directory;
}

Directory find_directory(std::istream& in, uint64_t file_size) {
  constexpr uint64_t kMaxComment = 65535;
  require(file_size >= kEndSize, "it has only {}",
          counted(static_cast<int64_t>(file_size), "byte"));
  const uint64_t tail_size = std::min(file_size, kEndSize + kMaxComment);
  const std::string tail = read_at(in, file_size - tail_size, tail_size);
  const size_t at = tail.rfind("PK\x05\x06", tail.size() - kEndSize);
  require(at != std::string::npos, "it has no end of a zip file: it is cut off or of another kind");
  std::string_view bytes = std::string_view(tail).substr(at);
  take_bytes(bytes, 4 + 2 + 2 + 2);
  Directory directory;
  directory.entries = take<uint16_t>(bytes);
  directory.size = take<uint32_t>(bytes);
  directory.offset = take<uint32_t>(bytes);
  const uint64_t end = file_size - tail_size + at;
  if (directory.entries == kElsewhere16 || directory.size == kElsewhere32 ||
      directory.offset == kElsewhere32) {
    directory = find_directory64(in, end);
  }
  require(directory.offset <= end && directory.size <= end - directory.offset,
          "its directory is said to lie at the bytes {}..+{}, outside of the file",
          directory.offset, directory.size);
  return directory;
}

// The values that did not fit into their fields stand here, in this order.
void read_extra(std::string_view extra, ZipEntry& entry) {
  while (extra.size() >= 4) {
    const auto id = take<uint16_t>(extra);
    std::string_view field = take_bytes(extra, take<uint16_t>(extra));
    if (id != kExtra64) continue;
    for (uint64_t* value : {&entry.size, &entry.stored_size, &entry.offset}) {
      if (*value == kElsewhere32) *value = take<uint64_t>(field);
    }
  }
}

ZipEntry read_entry(std::string_view& bytes) {
  require(take<uint32_t>(bytes) == kCentral, "its directory is damaged");
  take_bytes(bytes, 2 + 2);
  const auto flags = take<uint16_t>(bytes);
  const auto method = take<uint16_t>(bytes);
  take_bytes(bytes, 2 + 2);
  ZipEntry entry{.is_compressed = method != 0};
  entry.crc = take<uint32_t>(bytes);
  entry.stored_size = take<uint32_t>(bytes);
  entry.size = take<uint32_t>(bytes);
  const auto name_size = take<uint16_t>(bytes);
  const auto extra_size = take<uint16_t>(bytes);
  const auto comment_size = take<uint16_t>(bytes);
  take_bytes(bytes, 2 + 2 + 4);
  entry.offset = take<uint32_t>(bytes);
  entry.name = take_bytes(bytes, name_size);
  read_extra(take_bytes(bytes, extra_size), entry);
  take_bytes(bytes, comment_size);
  require(method == 0 || method == Z_DEFLATED,
          "'{}' is packed by method {}, which is not supported", entry.name, method);
  require((flags & 1) == 0, "'{}' is encrypted", entry.name);
  return entry;
}

void check_size(const ZipEntry& entry, uint64_t file_size) {
  constexpr uint64_t kDeflate = 1032;  // no more can be got out of a byte
  require(entry.stored_size <= file_size && entry.offset <= file_size - entry.stored_size,
          "'{}' is said to lie outside of the file", entry.name);
  const bool is_possible = entry.is_compressed ? entry.size / kDeflate <= entry.stored_size
                                               : entry.size == entry.stored_size;
  require(is_possible, "'{}' is said to have {} bytes in {} stored ones", entry.name, entry.size,
          entry.stored_size);
}

uint32_t crc_of(std::string_view bytes, uint32_t crc = 0) {
  constexpr size_t kMaxCall = size_t{1} << 30;
  for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMaxCall))) {
    crc = static_cast<uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(bytes.data()),
                                      static_cast<uInt>(std::min(bytes.size(), kMaxCall))));
  }
  return crc;
}

class Inflater {
 public:
  Inflater() { TP_ASSERT(inflateInit2(&stream_, -MAX_WBITS) == Z_OK); }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Whether `packed` becomes exactly `size` bytes.
  bool unpack(const std::string& packed, std::string& unpacked) {
    constexpr size_t kMaxCall = size_t{1} << 30;
    size_t read = 0;
    size_t written = 0;
    int code = Z_OK;
    while (code == Z_OK) {
      const size_t in = std::min(packed.size() - read, kMaxCall);
      const size_t out = std::min(unpacked.size() - written, kMaxCall);
      stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data() + read));
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = reinterpret_cast<Bytef*>(unpacked.data() + written);
      stream_.avail_out = static_cast<uInt>(out);
      code = inflate(&stream_, Z_NO_FLUSH);
      read += in - stream_.avail_in;
      written += out - stream_.avail_out;
    }
    return code == Z_STREAM_END && written == unpacked.size() && read == packed.size();
  }

 private:
  z_stream stream_{};
};

std::string local_header(const ZipEntry& entry) {
  std::string bytes;
  put(bytes, kLocal);
  put(bytes, kVersion64);
  put<uint16_t>(bytes, 1 << 11);     // names are UTF-8
  put<uint16_t>(bytes, 0);           // stored
  put<uint32_t>(bytes, 0x00210000);  // the first day there is: the same input gives the same bytes
  put(bytes, entry.crc);
  put(bytes, kElsewhere32);
  put(bytes, kElsewhere32);
  put(bytes, static_cast<uint16_t>(entry.name.size()));
  put<uint16_t>(bytes, 4 + 16);
  bytes += entry.name;
  put(bytes, kExtra64);
  put<uint16_t>(bytes, 16);
  put(bytes, entry.size);
  put(bytes, entry.stored_size);
  return bytes;
}

std::string central_header(const ZipEntry& entry) {
  std::string bytes;
  put(bytes, kCentral);
  put(bytes, kVersion64);
  put(bytes, kVersion64);
  put<uint16_t>(bytes, 1 << 11);
  put<uint16_t>(bytes, 0);
  put<uint32_t>(bytes, 0x00210000);
  put(bytes, entry.crc);
  put(bytes, kElsewhere32);
  put(bytes, kElsewhere32);
  put(bytes, static_cast<uint16_t>(entry.name.size()));
  put<uint16_t>(bytes, 4 + 24);
  put<uint16_t>(bytes, 0);
  put<uint16_t>(bytes, 0);
  put<uint16_t>(bytes, 0);
  put<uint32_t>(bytes, 0);
  put(bytes, kElsewhere32);
  bytes += entry.name;
  put(bytes, kExtra64);
  put<uint16_t>(bytes, 24);
  put(bytes, entry.size);
  put(bytes, entry.stored_size);
  put(bytes, entry.offset);
  return bytes;
}

// Always in the form for large files, so that there is only one.
std::string end_of_directory(uint64_t offset, uint64_t size, uint64_t entries) {
  std::string bytes;
  put(bytes, kEnd64);
  put<uint64_t>(bytes, kEnd64Size - 12);
  put(bytes, kVersion64);
  put(bytes, kVersion64);
  put<uint32_t>(bytes, 0);
  put<uint32_t>(bytes, 0);
  put(bytes, entries);
  put(bytes, entries);
  put(bytes, size);
  put(bytes, offset);
  put(bytes, kLocator64);
  put<uint32_t>(bytes, 0);
  put(bytes, offset + size);
  put<uint32_t>(bytes, 1);
  put(bytes, kEnd);
  put<uint16_t>(bytes, 0);
  put<uint16_t>(bytes, 0);
  put(bytes, kElsewhere16);
  put(bytes, kElsewhere16);
  put(bytes, kElsewhere32);
  put(bytes, kElsewhere32);
  put<uint16_t>(bytes, 0);
  return bytes;
}

}  // namespace

bool has_zip() { return true; }

std::vector<ZipEntry> read_zip_directory(std::istream& in, uint64_t file_size) {
  const Directory directory = find_directory(in, file_size);
  require(directory.entries <= directory.size / kCentralSize,
          "its directory of {} bytes cannot have {} entries", directory.size, directory.entries);
  const std::string text = read_at(in, directory.offset, directory.size);
  std::string_view bytes = text;
  std::vector<ZipEntry> entries;
  uint64_t stored = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    entries.push_back(read_entry(bytes));
    check_size(entries.back(), file_size);
    stored += entries.back().stored_size;
    // Entries that share their bytes would unpack to more than any file of this size can hold.
    require(stored <= file_size, "its entries are said to take more bytes than it has");
  }
  return entries;
}

std::string read_zip_entry(std::istream& in, const ZipEntry& entry) {
  const std::string header = read_at(in, entry.offset, kLocalSize);
  std::string_view bytes = header;
  require(take<uint32_t>(bytes) == kLocal, "'{}' does not begin where it should", entry.name);
  take_bytes(bytes, kLocalSize - 4 - 2 - 2);
  const uint64_t skipped = uint64_t{take<uint16_t>(bytes)} + take<uint16_t>(bytes);
  std::string contents = read_at(in, entry.offset + kLocalSize + skipped, entry.stored_size);
  if (entry.is_compressed) {
    std::string unpacked(entry.size, '\0');
    require(Inflater().unpack(contents, unpacked), "'{}' cannot be unpacked", entry.name);
    contents = std::move(unpacked);
  }
  require(crc_of(contents) == entry.crc, "the checksum of '{}' is wrong", entry.name);
  return contents;
}

void ZipWriter::add(const std::string& name, std::string_view head, std::string_view body) {
  require(name.size() <= std::numeric_limits<uint16_t>::max(), "a name has {} bytes", name.size());
  const ZipEntry entry{.name = name,
                       .crc = crc_of(body, crc_of(head)),
                       .stored_size = head.size() + body.size(),
                       .size = head.size() + body.size(),
                       .offset = position_};
  write(local_header(entry));
  write(head);
  write(body);
  entries_.push_back(entry);
}

void ZipWriter::finish() {
  std::string directory;
  for (const ZipEntry& entry : entries_) directory += central_header(entry);
  const std::string end = end_of_directory(position_, directory.size(), entries_.size());
  write(directory);
  write(end);
}

#else

namespace {
constexpr const char* kNoZlib = "this build has no zlib";
}

bool has_zip() { return false; }
std::vector<ZipEntry> read_zip_directory(std::istream&, uint64_t) { throw malformed(kNoZlib); }
std::string read_zip_entry(std::istream&, const ZipEntry&) { throw malformed(kNoZlib); }
void ZipWriter::add(const std::string&, std::string_view, std::string_view) {
  throw malformed(kNoZlib);
}
void ZipWriter::finish() { throw malformed(kNoZlib); }

#endif

void ZipWriter::write(std::string_view bytes) {
  out_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  position_ += bytes.size();
}

}  // namespace tensorpack::detail
