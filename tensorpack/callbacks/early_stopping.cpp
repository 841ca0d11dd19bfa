// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/early_stopping.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

EarlyStopping::EarlyStopping(EarlyStoppingOptions options) : options_(std::move(options)) {
  TP_CHECK(!options_.stat_name.empty(), "EarlyStopping",
           "stat_name is empty. Name the scalar to watch.");
  TP_CHECK(options_.patience > 0, "EarlyStopping", "the patience must be positive, got {}.",
           options_.patience);
}

void EarlyStopping::trigger() {
  const Monitors& monitors = trainer().monitors();
  if (!monitors.contains(options_.stat_name)) {
    log::warning("[EarlyStopping] '{}' was not reported yet. {}", options_.stat_name,
                 monitors.nearest_names(options_.stat_name));
    return;
  }
  const auto [step, value] = monitors.get_history(options_.stat_name).back();
  if (step == last_step_) return;
  last_step_ = step;
  const double gain = !best_ ? 0 : options_.reverse ? value - *best_ : *best_ - value;
  if (!std::isnan(value) && (!best_ || gain > options_.threshold)) {
    best_ = value;
    worse_ = 0;
    return;
  }
  if (++worse_ < options_.patience) return;
  throw StopTraining(fmt::format("'{}' has not become better than {:.5g} in {}.",
                                 options_.stat_name, best_.value_or(value),
                                 counted(worse_, "report")));
}

std::string EarlyStopping::save_state() const {
  if (!best_) return "";
  return nlohmann::json{{"best", fmt::format("{:a}", *best_)}, {"worse", worse_}}.dump();
}

void EarlyStopping::load_state(const std::string& state) {
  const auto values = nlohmann::json::parse(state);
  best_ = std::stod(values.at("best").get<std::string>());
  worse_ = values.at("worse").get<int64_t>();
}

}  // namespace tensorpack
