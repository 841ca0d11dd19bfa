// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/dataflow/format/tfrecord.h"

#include <torch/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <ostream>

#include "tensorpack/dataflow/detail/error_counter.h"
#include "tensorpack/dataflow/format/serialize.h"
#include "tensorpack/dataflow/value.h"
#include "tensorpack/utils/crc32c.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"

namespace tensorpack {
namespace {

// A record: its length, the masked checksum of that, the values, the masked checksum of those.
constexpr int64_t kHeadBytes = 12;
constexpr int64_t kTailBytes = 4;

template <typename T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(T)};
}

void write_record(std::ostream& out, std::string_view values) {
  const auto length = static_cast<uint64_t>(values.size());
  const uint32_t length_crc = masked_crc32c(bytes_of(length));
  const uint32_t values_crc = masked_crc32c(values);
  out << bytes_of(length) << bytes_of(length_crc) << values << bytes_of(values_crc);
}

template <typename ToBytes>
int64_t save(DataFlow& flow, const std::filesystem::path& path, ToBytes to_bytes) {
  int64_t count = 0;
  write_file_atomically(path, [&](std::ostream& out) {
    while (const auto point = flow.next()) {
      write_record(out, to_bytes(*point));
      ++count;
    }
  });
  return count;
}

}  // namespace

struct TFRecords::Impl {
  struct Record {
    int64_t offset = 0;
    int64_t length = 0;
  };

  Impl(std::filesystem::path p, TFRecordOptions options)
      : path(std::move(p)),
        file(path, std::ios::binary),
        skips_errors(options.on_error == OnError::kSkip),
        errors("TFRecords") {
    TP_CHECK(file.is_open(), "TFRecords", "cannot open '{}': {}. Check the path.", path.string(),
             std::strerror(errno));
    TP_CHECK(!std::filesystem::is_directory(path), "TFRecords",
             "'{}' is a folder. Pass one of the files in it.", path.string());
    find_records();
  }

  void find_records() {
    const auto end = static_cast<int64_t>(std::filesystem::file_size(path));
    for (int64_t offset = 0; offset < end;) {
      std::array<char, kHeadBytes> head = {};
      file.seekg(offset);
      file.read(head.data(), kHeadBytes);
      TP_CHECK(file.gcount() == kHeadBytes, "TFRecords",
               "'{}' is cut off at offset {}, in the length of a record. Get the file again.",
               path.string(), offset);
      uint64_t length = 0;
      uint32_t crc = 0;
      std::memcpy(&length, head.data(), sizeof(length));
      std::memcpy(&crc, head.data() + sizeof(length), sizeof(crc));
      TP_CHECK(crc == masked_crc32c(bytes_of(length)), "TFRecords",
               "'{}' has a wrong checksum at offset {}, in the length of a record. It is damaged, "
               "or not a TFRecord file.",
               path.string(), offset);
      const int64_t room = end - offset - kHeadBytes - kTailBytes;
      TP_CHECK(
          room >= 0 && length <= static_cast<uint64_t>(room), "TFRecords",
          "'{}' is cut off: the record at offset {} has {} bytes, but the file ends at {}. Get "
          "the file again.",
          path.string(), offset, length, end);
      records.push_back({offset, static_cast<int64_t>(length)});
      offset += kHeadBytes + static_cast<int64_t>(length) + kTailBytes;
    }
    file.clear();
  }

  // The values of a record, checked.
  at::Tensor read(const Record& record) {
    at::Tensor values = at::empty({record.length}, at::kByte);
    uint32_t crc = 0;
    file.clear();
    file.seekg(record.offset + kHeadBytes);
    file.read(static_cast<char*>(values.data_ptr()), record.length);
    file.read(reinterpret_cast<char*>(&crc), sizeof(crc));
    TP_CHECK(file.good(), "TFRecords", "'{}' cannot be read at offset {}. Get the file again.",
             path.string(), record.offset);
    TP_CHECK(crc == masked_crc32c(bytes_view(values)), "TFRecords",
             "'{}' has a wrong checksum in the record at offset {} ({} bytes). Get the file again, "
             "or leave such records out with .on_error = OnError::kSkip.",
             path.string(), record.offset, record.length);
    return values;
  }

  std::filesystem::path path;
  std::ifstream file;
  bool skips_errors;
  detail::ErrorCounter errors;
  std::vector<Record> records;
  size_t position = 0;
};

TFRecords::TFRecords(std::filesystem::path path, TFRecordOptions options)
    : impl_(std::make_unique<Impl>(std::move(path), options)) {}
TFRecords::TFRecords(TFRecords&&) noexcept = default;
TFRecords::~TFRecords() = default;

void TFRecords::start(int64_t /*pass*/) { impl_->position = 0; }

std::optional<DataPoint> TFRecords::next() {
  while (impl_->position < impl_->records.size()) {
    const Impl::Record& record = impl_->records[impl_->position++];
    if (!impl_->skips_errors) return DataPoint{impl_->read(record)};
    try {
      return DataPoint{impl_->read(record)};
    } catch (...) {
      impl_->errors.count("a record");
    }
  }
  return std::nullopt;
}

int64_t TFRecords::skip(int64_t count) {
  if (impl_->skips_errors) return DataFlow::skip(count);
  count = std::min(count, std::ssize(impl_->records) - static_cast<int64_t>(impl_->position));
  impl_->position += static_cast<size_t>(count);
  return count;
}

std::optional<int64_t> TFRecords::size() const {
  if (impl_->skips_errors) return std::nullopt;
  return std::ssize(impl_->records);
}

std::string TFRecords::place() const {
  const int64_t offset = impl_->position == 0 ? 0 : impl_->records[impl_->position - 1].offset;
  return fmt::format("'{}', record at offset {}", impl_->path.string(), offset);
}

TFRecordData::TFRecordData(const std::filesystem::path& path, TFRecordOptions options)
    : DecodedRecords(TFRecords(path, options)) {}

std::optional<DataPoint> TFRecordData::next() {
  const auto record = records_.next();
  if (!record) return std::nullopt;
  return deserialize((*record)[0], "TFRecordData " + records_.place());
}

int64_t save_tfrecord(DataFlow& flow, const std::filesystem::path& path) {
  return save(flow, path, [](const DataPoint& point) { return serialize(point); });
}

int64_t save_tfrecords(DataFlow& flow, const std::filesystem::path& path) {
  return save(flow, path, [](const DataPoint& point) {
    TP_CHECK(!point.empty(), "save_tfrecords", "a datapoint has no component to write.");
    return bytes_view(point[0]);
  });
}

}  // namespace tensorpack
