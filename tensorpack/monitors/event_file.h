// SPDX-License-Identifier: Apache-2.0
// The files that TensorBoard reads: records of Event messages.
//
// Note [Event files]
// A record is the length of a message (8 bytes, little-endian), a checksum of these bytes, the
// message, and its checksum. Checksums are CRC32C, rotated and shifted by a constant. The messages
// are those of tests/monitors/event.proto.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/utils/protobuf.h"

namespace tensorpack {

/// Appends events to a new file.
class EventFile {
 public:
  /// Creates the file, with the event that TensorBoard expects first. Throws Error if it cannot.
  explicit EventFile(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }

  /// An event of now: `summary` is a message of type Summary.
  void add_summary(const ProtoWriter& summary, int64_t step);
  /// `graph_def` are the bytes of a GraphDef.
  void add_graph(std::string_view graph_def, int64_t step);
  /// Hands what was added to the system. Throws Error when it cannot be written.
  void flush();

 private:
  void add(const ProtoWriter& event);

  std::filesystem::path path_;
  std::ofstream file_;
};

/// The messages of an event file, up to its end or the first damage, as after a kill.
std::vector<std::string> read_events(const std::filesystem::path& path);

/// The step of an Event message; 0 if it has none.
int64_t step_of_event(std::string_view event);

/// Removes the events of steps after `last_step`, and a record that was cut off. Returns how many
/// records were removed. The file is replaced as a whole, or not at all.
size_t cut_event_file(const std::filesystem::path& path, int64_t last_step);

}  // namespace tensorpack
