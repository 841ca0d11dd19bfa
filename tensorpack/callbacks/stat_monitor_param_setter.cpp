// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/stat_monitor_param_setter.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {

StatMonitorParamSetter::StatMonitorParamSetter(AnyHyperParam param,
                                               StatMonitorParamSetterOptions options)
    : HyperParamSetter(std::move(param)),
      options_(std::move(options)),
      scalar_("StatMonitorParamSetter", options_.stat_name) {
  TP_CHECK(!options_.stat_name.empty(), "StatMonitorParamSetter",
           "stat_name is empty. Name the scalar to watch.");
  TP_CHECK(options_.value_func != nullptr, "StatMonitorParamSetter",
           "value_func is empty. Pass a function from the old value to the new one.");
  TP_CHECK(options_.last_k >= 1, "StatMonitorParamSetter", "last_k must be 1 or more, got {}.",
           options_.last_k);
}

void StatMonitorParamSetter::before_train() {
  last_step_ = -1;
  scalar_.check_before(trainer());
}

std::optional<double> StatMonitorParamSetter::next_value() {
  if (!scalar_.is_there(trainer(), ": nothing is decided")) return std::nullopt;
  const auto [step, value] = trainer().monitors().get_history(options_.stat_name).back();
  if (step == last_step_) {
    logging::warning("[StatMonitorParamSetter] '{}' has no new value since step {}.",
                     options_.stat_name, step);
    return std::nullopt;
  }
  last_step_ = step;
  seen_.push_back(value);
  if (static_cast<int64_t>(seen_.size()) > options_.last_k) seen_.erase(seen_.begin());
  if (static_cast<int64_t>(seen_.size()) < options_.last_k || is_better()) return std::nullopt;
  logging::info("[StatMonitorParamSetter] '{}' was {:.5g} and has not become better by {} in {}.",
                options_.stat_name, seen_.front(), options_.threshold,
                counted(options_.last_k, "report"));
  seen_.clear();
  return options_.value_func(param().get_value());
}

// Than the oldest that counts.
bool StatMonitorParamSetter::is_better() const {
  const auto [least, greatest] = std::minmax_element(seen_.begin(), seen_.end());
  return options_.reverse ? *greatest > seen_.front() + options_.threshold
                          : *least < seen_.front() - options_.threshold;
}

std::vector<std::string> StatMonitorParamSetter::fingerprint() const {
  return {fmt::format("{} by {} = threshold {}, last_k {}{}", param().readable_name(),
                      options_.stat_name, options_.threshold, options_.last_k,
                      options_.reverse ? ", reverse" : "")};
}

std::string StatMonitorParamSetter::save_state() const {
  nlohmann::json state = {{"value", HyperParamSetter::save_state()}};
  state["seen"] = nlohmann::json::array();
  for (const double value : seen_) state["seen"].push_back(exact_text(value));
  return state.dump();
}

void StatMonitorParamSetter::load_state(const std::string& state) {
  const auto values = nlohmann::json::parse(state);
  const auto value = values.at("value").get<std::string>();
  if (!value.empty()) HyperParamSetter::load_state(value);
  seen_.clear();
  for (const auto& text : values.at("seen")) {
    seen_.push_back(parse_exact_text(text.get<std::string>()));
  }
}

}  // namespace tensorpack
