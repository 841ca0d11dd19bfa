// SPDX-License-Identifier: Apache-2.0
// TensorFlow's files of records, each with checksums.
#pragma once

#include <filesystem>
#include <string>

#include "tensorpack/dataflow/detail/decoded_records.h"
#include "tensorpack/dataflow/on_error.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

struct TFRecordOptions {
  /// Whether a record whose values have a wrong checksum ends the reading with an error or is left
  /// out. If the length of a record is damaged, the next one cannot be found: always an error.
  OnError on_error = OnError::kThrow;
};

/// Yields the records of a file as they are: {bytes: uint8 [n]}.
///
/// When it is made, it finds out where records are; their values are read in next().
class TFRecords final : public DataFlow {
 public:
  explicit TFRecords(std::filesystem::path path, TFRecordOptions options = {});
  TFRecords(TFRecords&&) noexcept;
  ~TFRecords() override;

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;
  int64_t skip(int64_t count) override;
  std::optional<int64_t> size() const override;

  /// For messages: where the record lies that next() gave last.
  std::string place() const;

 private:
  struct Impl;
  detail::Pimpl<Impl> impl_;
};

/// Yields the datapoints that save_tfrecord() wrote.
class TFRecordData final : public detail::DecodedRecords<TFRecords> {
 public:
  explicit TFRecordData(const std::filesystem::path& path, TFRecordOptions options = {});

  std::optional<DataPoint> next() override;
};

/// Writes the rest of the pass of `flow`, whole or not at all; returns the number of datapoints.
int64_t save_tfrecord(DataFlow& flow, const std::filesystem::path& path);

/// Writes records as they are: the first component of each datapoint, which must be bytes.
int64_t save_tfrecords(DataFlow& flow, const std::filesystem::path& path);

}  // namespace tensorpack
