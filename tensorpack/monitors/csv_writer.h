// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tensorpack/monitors/monitor.h"

namespace tensorpack {

struct CSVWriterOptions {
  /// The file; by default `stats.csv` in the log directory.
  std::filesystem::path path = {};
};

/// Writes a table for spreadsheets: a row for every step that reported something, with
/// `epoch_num`, `global_step` and a column for each scalar.
///
/// A scalar that is new gets a column at the end, empty in earlier rows. What the last step of an
/// epoch and its trigger_epoch() report share one row. Before training it does as JSONWriter does
/// with a file that is there: a training that goes on removes the rows of steps that will be made
/// again; otherwise the file is moved to `stats.csv.<MMDD-HHMMSS>`. Without a log directory nothing
/// is written, after a warning; a file that cannot be written is an error in the log, once, and
/// training goes on.
class CSVWriter final : public MonitorBase {
 public:
  explicit CSVWriter(CSVWriterOptions options = {});

  void process_scalar(const std::string& name, double value, const LoopState& loop) override;
  void before_train(const LoopState& loop) override;
  void trigger_step(const LoopState& loop) override;
  void trigger_epoch(const LoopState& loop) override { write(loop); }
  void flush() override;
  void after_train(const LoopState& loop) override { write(loop); }

 private:
  void take_up_file(const LoopState& loop);
  void add_columns();
  void write(const LoopState& loop);

  CSVWriterOptions options_;
  std::filesystem::path path_;  // empty: nothing is written
  std::vector<std::string> columns_;
  std::map<std::string, double> unwritten_;
  bool failed_ = false;
};

}  // namespace tensorpack
