// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/early_stopping.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

EarlyStopping::EarlyStopping(EarlyStoppingOptions options)
    : options_(std::move(options)), scalar_("EarlyStopping", options_.stat_name) {
  TP_CHECK(!options_.stat_name.empty(), "EarlyStopping",
           "stat_name is empty. Name the scalar to watch.");
  TP_CHECK(options_.patience > 0, "EarlyStopping", "the patience must be positive, got {}.",
           options_.patience);
}

void EarlyStopping::before_train() {
  last_step_ = -1;
  scalar_.check_before(trainer());
}

void EarlyStopping::trigger() {
  if (!scalar_.is_there(trainer(), "")) return;
  const auto [step, value] = trainer().monitors().get_history(options_.stat_name).back();
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
  return nlohmann::json{{"best", exact_text(*best_)}, {"worse", worse_}}.dump();
}

void EarlyStopping::load_state(const std::string& state) {
  const auto values = nlohmann::json::parse(state);
  best_ = parse_exact_text(values.at("best").get<std::string>());
  worse_ = values.at("worse").get<int64_t>();
}

}  // namespace tensorpack
