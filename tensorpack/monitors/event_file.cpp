// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/event_file.h"

#include <chrono>
#include <cstring>

#include "tensorpack/utils/crc32c.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/fs.h"
#include "tensorpack/utils/protobuf_reader.h"

namespace tensorpack {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHeaderSize = 12;  // the length and its checksum
constexpr size_t kFooterSize = 4;

template <typename T>
void put(std::string& bytes, T value) {
  char raw[sizeof value];
  std::memcpy(raw, &value, sizeof value);
  bytes.append(raw, sizeof raw);
}

template <typename T>
T get(std::string_view bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::string to_record(std::string_view message) {
  std::string record;
  record.reserve(kHeaderSize + message.size() + kFooterSize);
  put<uint64_t>(record, message.size());
  put(record, masked_crc32c(record));
  record.append(message);
  put(record, masked_crc32c(message));
  return record;
}

ProtoWriter event_at(int64_t step) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  ProtoWriter event;
  event.number(1, std::chrono::duration<double>(now).count());
  event.integer(2, step);
  return event;
}

}  // namespace

EventFile::EventFile(fs::path path)
    : path_(std::move(path)), file_(path_, std::ios::binary | std::ios::trunc) {
  TP_CHECK(file_.is_open(), "event file", "'{}' cannot be written: {}.", path_.string(),
           std::strerror(errno));
  ProtoWriter event = event_at(0);
  event.string(3, "brain.Event:2");
  add(event);
}

void EventFile::add_summary(const ProtoWriter& summary, int64_t step) {
  ProtoWriter event = event_at(step);
  event.message(5, summary);
  add(event);
}

void EventFile::add_graph(std::string_view graph_def, int64_t step) {
  ProtoWriter event = event_at(step);
  event.string(4, graph_def);
  add(event);
}

void EventFile::add(const ProtoWriter& event) {
  const std::string record = to_record(event.bytes());
  file_.write(record.data(), static_cast<std::streamsize>(record.size()));
}

void EventFile::flush() {
  file_.flush();
  TP_CHECK(file_.good(), "event file", "'{}' cannot be written. Is the disk full?", path_.string());
}

std::vector<std::string> read_events(const fs::path& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> events;
  std::string_view rest = bytes;
  while (rest.size() >= kHeaderSize + kFooterSize) {
    if (get<uint32_t>(rest.substr(8)) != masked_crc32c(rest.substr(0, 8))) break;
    const auto size = get<uint64_t>(rest);
    if (size > rest.size() - kHeaderSize - kFooterSize) break;
    const std::string_view message = rest.substr(kHeaderSize, size);
    if (get<uint32_t>(rest.substr(kHeaderSize + size)) != masked_crc32c(message)) break;
    events.emplace_back(message);
    rest.remove_prefix(kHeaderSize + size + kFooterSize);
  }
  return events;
}

int64_t step_of_event(std::string_view event) {
  constexpr int64_t kStep = 2;
  ProtoReader reader(event);
  while (const auto field = reader.next()) {
    if (field->number == kStep) return static_cast<int64_t>(field->integer);
  }
  return 0;
}

size_t cut_event_file(const fs::path& path, int64_t last_step) {
  const auto size = fs::file_size(path);
  size_t removed = 0;
  std::string kept;
  for (const std::string& event : read_events(path)) {
    if (step_of_event(event) <= last_step) {
      kept += to_record(event);
    } else {
      ++removed;
    }
  }
  if (kept.size() != size) write_file_atomically(path, kept);
  return removed;
}

}  // namespace tensorpack
