// SPDX-License-Identifier: Apache-2.0
// The numbers of a training in its log.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensorpack/monitors/monitor.h"

namespace tensorpack {

struct ScalarPrinterOptions {
  bool enable_step = false;
  bool enable_epoch = true;
  /// Only names with a match of one of these regular expressions are printed; all when empty.
  std::vector<std::string> whitelist = {};
  /// Names with a match of one of these are not printed.
  std::vector<std::string> blacklist = {};
};

/// Logs the newest value of each scalar, sorted by name. After an epoch it is a table, with the
/// change since the last one that was printed:
///
///   cost:             0.31204    -0.0412
///   validation_error: 0.0893     -0.0021
///
/// With both options on, the last step of an epoch is printed together with the epoch. Throws Error
/// when a regular expression is not valid.
class ScalarPrinter final : public MonitorBase {
 public:
  explicit ScalarPrinter(ScalarPrinterOptions options = {});

  void process_scalar(const std::string& name, double value, const LoopState& loop) override;
  void before_train(const LoopState&) override { print_table(); }
  void trigger_step(const LoopState& loop) override;
  void trigger_epoch(const LoopState& loop) override;

 private:
  struct Lists;
  bool is_shown(const std::string& name) const;
  void print_lines();
  void print_table();

  bool enable_step_;
  bool enable_epoch_;
  std::shared_ptr<const Lists> lists_;
  std::map<std::string, double> unprinted_;
  std::map<std::string, double> last_;  // what the last table had
};

}  // namespace tensorpack
