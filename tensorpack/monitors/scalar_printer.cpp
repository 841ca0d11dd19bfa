// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/scalar_printer.h"

#include <algorithm>
#include <regex>
#include <utility>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/regex.h"

namespace tensorpack {
namespace {

std::vector<std::regex> compile(const std::vector<std::string>& patterns) {
  std::vector<std::regex> compiled;
  for (const std::string& pattern : patterns) {
    compiled.push_back(compile_regex("ScalarPrinter", pattern));
  }
  return compiled;
}

}  // namespace

struct ScalarPrinter::Lists {
  std::vector<std::regex> whitelist;
  std::vector<std::regex> blacklist;
};

ScalarPrinter::ScalarPrinter(ScalarPrinterOptions options)
    : enable_step_(options.enable_step),
      enable_epoch_(options.enable_epoch),
      lists_(std::make_shared<const Lists>(Lists{.whitelist = compile(options.whitelist),
                                                 .blacklist = compile(options.blacklist)})) {}

void ScalarPrinter::process_scalar(const std::string& name, double value, const LoopState&) {
  if (is_shown(name)) unprinted_[name] = value;
}

void ScalarPrinter::trigger_step(const LoopState& loop) {
  const bool epoch_will_print = enable_epoch_ && loop.is_last_step_of_epoch();
  if (enable_step_ && !epoch_will_print) print_lines();
}

void ScalarPrinter::trigger_epoch(const LoopState&) {
  if (enable_epoch_) print_table();
}

bool ScalarPrinter::is_shown(const std::string& name) const {
  if (matches_any(name, lists_->blacklist)) return false;
  return lists_->whitelist.empty() || matches_any(name, lists_->whitelist);
}

void ScalarPrinter::print_lines() {
  for (const auto& [name, value] : std::exchange(unprinted_, {})) {
    logging::info("{}: {:.5g}", name, value);
  }
}

// One message, so that lines of other threads do not come between; the lines below each other.
void ScalarPrinter::print_table() {
  if (unprinted_.empty()) return;
  size_t widest = 0;
  for (const auto& [name, value] : unprinted_) widest = std::max(widest, name.size());
  std::string table;
  for (const auto& [name, value] : std::exchange(unprinted_, {})) {
    const auto last = last_.find(name);
    const std::string change = last == last_.end() || last->second == value
                                   ? ""
                                   : fmt::format(" {:+.3g}", value - last->second);
    table += fmt::format("\n  {:<{}} {:<10}{}", name + ":", widest + 1,
                         fmt::format("{:.5g}", value), change);
    table.resize(table.find_last_not_of(' ') + 1);
    last_[name] = value;
  }
  logging::info("Scalars:{}", table);
}

}  // namespace tensorpack
