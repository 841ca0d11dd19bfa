// SPDX-License-Identifier: Apache-2.0
// What a file was made of, so that it is made again only when that has changed.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace tensorpack {

/// The command that made a file, and the files it read. Contents decide: a file that was only
/// touched has not changed.
class FileRecord {
 public:
  /// Of files as they are now. One that was written after `started` may have been read half
  /// written, and counts as changed, as does one that is gone.
  FileRecord(std::string command, const std::vector<std::filesystem::path>& files,
             std::chrono::file_clock::time_point started);

  /// Of a file that could not be made: never current, but with the files that it needs.
  static FileRecord outdated(const std::vector<std::filesystem::path>& files);

  /// Reads what write() wrote; a record that cannot be read is never current.
  static FileRecord read(const std::filesystem::path& path);
  void write(const std::filesystem::path& path) const;

  /// Whether the same command would read the same contents now.
  bool is_current(const std::string& command) const;
  std::vector<std::filesystem::path> files() const;

 private:
  struct Input {
    std::string path;
    std::uint64_t size = 0;
    std::int64_t time = 0;
    std::uint64_t hash = 0;
  };
  FileRecord() = default;
  static bool is_same(const Input& input);

  std::string command_;
  std::vector<Input> inputs_;
};

/// The prerequisites in a file that a compiler wrote for make (-MD).
std::vector<std::filesystem::path> read_dependencies(const std::filesystem::path& path);

}  // namespace tensorpack
