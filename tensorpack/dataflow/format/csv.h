// SPDX-License-Identifier: Apache-2.0
// Tables in text files.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tensorpack/dataflow/dataflow.h"
#include "tensorpack/dataflow/on_error.h"
#include "tensorpack/utils/detail/pimpl.h"

namespace tensorpack {

/// One component of the datapoints of a CsvData.
struct CsvComponent {
  /// Names of columns, or their numbers from 0 if the file has no header. Of several, the component
  /// is a vector; of one, a scalar.
  std::vector<std::string> columns = {};
  /// The type; kByte is for text, which comes as bytes and takes one column.
  at::ScalarType dtype = at::kFloat;
};

struct CsvOptions {
  char separator = ',';
  /// Whether the first line names the columns.
  bool header = true;
  OnError on_error = OnError::kThrow;  ///< for lines that are not as they should be
};

/// Yields a datapoint for every line of a table. Fields may be quoted, and then have separators,
/// line breaks and doubled quotes in them. Files may be compressed with gzip.
///
///   CsvData("iris.csv", {{.columns = {"length", "width"}}, {.columns = {"kind"}, .dtype =
///   at::kLong}})
///
/// A number that is none, NaN among them, is an error that names file and line.
class CsvData final : public DataFlow {
 public:
  CsvData(std::filesystem::path path, std::vector<CsvComponent> components,
          CsvOptions options = {});
  CsvData(CsvData&&) noexcept;
  ~CsvData() override;

  void start(int64_t pass) override;
  std::optional<DataPoint> next() override;

 private:
  struct Impl;
  detail::Pimpl<Impl> impl_;
};

/// Writes the rest of the pass of `flow`, whole or not at all: a line for every datapoint, a column
/// for every element of its components; components of bytes are texts. Returns the number of lines.
int64_t save_csv(DataFlow& flow, const std::filesystem::path& path,
                 const std::vector<std::string>& columns, char separator = ',');

}  // namespace tensorpack
