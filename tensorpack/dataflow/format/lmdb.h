// SPDX-License-Identifier: Apache-2.0
// Datapoints in LMDB, a database in one file that is read without copying it to memory first.
//
// Keys are numbers of eight digits and values are what serialize() makes. Where the library was
// built without LMDB, all of this throws an Error that says so.
#pragma once

#include <filesystem>

#include "tensorpack/dataflow/detail/decoded_records.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

struct LmdbOptions {
  /// Whether each pass comes in a new random order.
  bool shuffle = false;
  std::optional<uint64_t> seed = {};
};

/// Yields the records of a database as they are: {key: uint8 [n], value: uint8 [m]}, by ascending
/// key.
class LmdbRecords final : public DataFlow {
 public:
  explicit LmdbRecords(std::filesystem::path path, LmdbOptions options = {});
  LmdbRecords(LmdbRecords&&) noexcept;
  ~LmdbRecords() override;

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;
  int64_t skip(int64_t count) override;
  std::optional<int64_t> size() const override;

 private:
  struct Impl;
  detail::Pimpl<Impl> impl_;
};

/// Yields the datapoints that save_lmdb() wrote.
class LmdbData final : public detail::DecodedRecords<LmdbRecords> {
 public:
  explicit LmdbData(const std::filesystem::path& path, LmdbOptions options = {});

  std::optional<DataPoint> next() override;

 private:
  std::filesystem::path path_;
};

/// Writes the rest of the pass of `flow` to a new database, whole or not at all, and returns the
/// number of datapoints. Throws Error if there is one at `path` already.
int64_t save_lmdb(DataFlow& flow, const std::filesystem::path& path);

}  // namespace tensorpack
