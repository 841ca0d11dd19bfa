// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>

namespace tensorpack::detail {

/// How many bytes of an LMDB file are read by who reads all its records: up to the end of the last
/// page that belongs to one.
///
/// The file may be shorter than all pages it counts: those that a writer took and gave back at once
/// were never written. To know this, the tree is walked, and of a file that is cut off nothing is
/// read that is not there. Throws Error if the file is no LMDB.
uint64_t lmdb_bytes_in_use(const std::filesystem::path& file);

}  // namespace tensorpack::detail
