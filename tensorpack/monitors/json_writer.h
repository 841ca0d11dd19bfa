// SPDX-License-Identifier: Apache-2.0
// The numbers of a training as a JSON file.
#pragma once

#include <filesystem>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tensorpack/monitors/monitor.h"

namespace tensorpack {

struct JSONWriterOptions {
  /// The file; by default `stats.json` in the log directory.
  std::filesystem::path path = {};
};

/// Writes a JSON list with one object for every step that reported something: its scalars,
/// `epoch_num` and `global_step`.
///
/// What the last step of an epoch and its trigger_epoch() report share one object. The file is a
/// valid list after every write, and a write costs the same however long the list is. A value that
/// is not finite becomes null. Without a log directory nothing is written, after a warning; a file
/// that cannot be written is an error in the log, once, and training goes on.
///
/// Before training a file that ends with the epoch before the first one is continued. So is one
/// that goes further, when a training is resumed: what belongs to steps that will be made again is
/// removed. Any other is moved to `stats.json.<MMDD-HHMMSS>`.
class JSONWriter final : public MonitorBase {
 public:
  explicit JSONWriter(JSONWriterOptions options = {});

  void process_scalar(const std::string& name, double value, const LoopState& loop) override;
  void before_train(const LoopState& loop) override;
  void trigger_step(const LoopState& loop) override;
  void trigger_epoch(const LoopState& loop) override { write(loop); }
  void flush() override;
  void after_train(const LoopState& loop) override { write(loop); }

  /// The numbers of one step by their names; null in the file is NaN.
  using Row = std::map<std::string, double>;
  /// The list in `dir`, by default the log directory, without an object that was cut off; nothing
  /// when there is none that can be read.
  static std::optional<std::vector<Row>> load_existing_json(
      const std::optional<std::filesystem::path>& dir = {});

  /// The epoch of the last object in `dir`, by default the log directory; nothing when there is
  /// none.
  static std::optional<int64_t> load_existing_epoch_number(
      const std::optional<std::filesystem::path>& dir = {});

 private:
  void continue_or_move(const LoopState& loop);
  bool cut_back(const std::optional<nlohmann::json>& list, const LoopState& loop);
  void write(const LoopState& loop);

  JSONWriterOptions options_;
  std::filesystem::path path_;  // empty: nothing is written
  std::map<std::string, double> unwritten_;
  bool failed_ = false;
};

}  // namespace tensorpack
