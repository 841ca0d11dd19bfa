// SPDX-License-Identifier: Apache-2.0
// The zip container, as far as files of NumPy need it: no encryption, no parts.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "tensorpack/checkpoint/detail/malformed.h"

namespace tensorpack::detail {

/// Whether this build can read and write zip files at all: without zlib it cannot.
bool has_zip();

struct ZipEntry {
  std::string name = {};
  bool is_compressed = false;
  uint32_t crc = 0;
  uint64_t stored_size = 0;  ///< in the file
  uint64_t size = 0;         ///< unpacked
  uint64_t offset = 0;       ///< of its local header
};

/// The entries of a file. Throws Malformed for a directory that cannot be true of `file_size`
/// bytes, so that what follows allocates no more than the file can hold.
std::vector<ZipEntry> read_zip_directory(std::istream& in, uint64_t file_size);

/// The bytes of an entry, unpacked, with their checksum verified. Throws Malformed.
std::string read_zip_entry(std::istream& in, const ZipEntry& entry);

/// Writes entries one after another, uncompressed.
class ZipWriter {
 public:
  explicit ZipWriter(std::ostream& out) : out_(out) {}
  /// The entry's contents are `head` and then `body`.
  void add(const std::string& name, std::string_view head, std::string_view body);
  /// Writes the directory; nothing may follow.
  void finish();

 private:
  void write(std::string_view bytes);

  std::ostream& out_;
  uint64_t position_ = 0;
  std::vector<ZipEntry> entries_;
};

}  // namespace tensorpack::detail
