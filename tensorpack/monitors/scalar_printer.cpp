// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/monitors/scalar_printer.h"

#include <algorithm>
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

bool matches_any(const std::string& name, const std::vector<std::regex>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::regex& pattern) { return std::regex_search(name, pattern); });
}

}  // namespace

ScalarPrinter::ScalarPrinter(ScalarPrinterOptions options)
    : enable_step_(options.enable_step),
      enable_epoch_(options.enable_epoch),
      whitelist_(compile(options.whitelist)),
      blacklist_(compile(options.blacklist)) {}

void ScalarPrinter::process_scalar(const std::string& name, double value, const LoopState&) {
  if (is_shown(name)) unprinted_[name] = value;
}

void ScalarPrinter::trigger_step(const LoopState& loop) {
  const bool epoch_will_print = enable_epoch_ && loop.is_last_step_of_epoch();
  if (enable_step_ && !epoch_will_print) print();
}

void ScalarPrinter::trigger_epoch(const LoopState&) {
  if (enable_epoch_) print();
}

bool ScalarPrinter::is_shown(const std::string& name) const {
  if (matches_any(name, blacklist_)) return false;
  return whitelist_.empty() || matches_any(name, whitelist_);
}

void ScalarPrinter::print() {
  for (const auto& [name, value] : std::exchange(unprinted_, {})) {
    log::info("{}: {:.5g}", name, value);
  }
}

}  // namespace tensorpack
