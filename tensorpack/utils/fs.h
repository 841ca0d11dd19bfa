// SPDX-License-Identifier: Apache-2.0
// Files: whole reads, writes that never leave half a file, temporary and dataset directories.
#pragma once

#include <filesystem>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>

namespace tensorpack {

/// Replaces the contents of `path` by what `write` puts into the stream, all of it or nothing.
///
/// The bytes go to a temporary file beside `path`, which is synchronized to the disk and renamed.
/// Throws Error when the file cannot be written, and whatever `write` throws; in both cases the
/// old file is untouched and the temporary one is removed.
void write_file_atomically(const std::filesystem::path& path,
                           const std::function<void(std::ostream&)>& write);

/// Replaces the contents of `path` by `bytes`, all of them or nothing.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Waits until what was written to a file is on the disk. A file that is not there is not missed.
void sync_file(const std::filesystem::path& path);

/// Removes the temporary files that writers left in `dir` when they were killed. Those of a writer
/// that is at work stay.
void remove_stale_temporaries(const std::filesystem::path& dir);

/// The whole contents of a file; throws Error when it cannot be read.
std::string read_file(const std::filesystem::path& path);

/// The local time as MMDD-HHMMSS, for the names of files.
std::string timestamp();

/// Where the files of a dataset belong: $TENSORPACK_DATASET, or tensorpack_data in the home
/// directory, then `name`. Nothing is created.
std::filesystem::path dataset_path(std::string_view name = {});

/// Where what can be made again is kept: $XDG_CACHE_HOME/tensorpack/name, or
/// ~/.cache/tensorpack/name; empty when there is no home. Nothing is created.
std::filesystem::path cache_path(std::string_view name);

/// A new empty directory that is removed, with its contents, at the end of the scope.
class [[nodiscard]] TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::filesystem::path& path() const { return path_; }

  /// A path inside the directory.
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace tensorpack
