// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/hyper_param_setter.h"

#include <cmath>

#include "tensorpack/parallel/rank_state.h"
#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

std::optional<double> chosen_by_chief(const std::optional<double>& own, ProcessGroup& processes) {
  StateTexts states;
  if (own) states.emplace("value", exact_text(*own));
  states = share_of_chief(states, processes);
  if (states.empty()) return std::nullopt;
  return parse_exact_text(states.at("value"));
}

}  // namespace

HyperParamSetter::HyperParamSetter(AnyHyperParam param) : param_(std::move(param)) {
  set_chief_only(false);
}

void HyperParamSetter::setup_graph() {
  TP_CHECK(trainer().processes() == nullptr || !chief_only(), name(),
           "{} would be set in the chief process alone, and the other ranks would go on with the "
           "value before. Leave out set_chief_only(true).",
           param_->readable_name());
  param_->setup(graph());
  last_set_.reset();
  last_told_ = -1;
}

ReportedScalars HyperParamSetter::reports() const {
  return {.names = {param().readable_name()}, .are_all = true};
}

void HyperParamSetter::before_train() { HyperParamSetter::trigger(); }

// Before trigger(), which changes it for the next epoch.
void HyperParamSetter::after_epoch() {
  trainer().monitors().put_scalar(param().readable_name(), param().get_value());
}

void HyperParamSetter::trigger() {
  std::optional<double> value;
  if (is_decided_by_chief() && trainer().processes() != nullptr) {
    if (trainer().is_chief()) value = next_value();
    value = chosen_by_chief(value, *trainer().processes());
  } else {
    value = next_value();
  }
  if (value) set(*value);
}

void HyperParamSetter::set(double value) {
  TP_CHECK(!std::isnan(value), name(),
           "{} would become NaN at epoch {}, global_step {}. Check the function or the schedule.",
           param().readable_name(), epoch_num(), global_step());
  if (last_set_ == value) return;
  if (last_told_ != epoch_num()) {
    const std::string old = fmt::format("{:.6g}", last_set_ ? *last_set_ : param().get_value());
    const std::string text = fmt::format("{:.6g}", value);  // variables are floats
    logging::info("{}: {} {}", name(), param().readable_name(),
                  old == text ? "is " + text + "." : "changes from " + old + " to " + text + ".");
    last_told_ = epoch_num();
  }
  assign(value);
  last_set_ = value;
}

void HyperParamSetter::assign(double value) {
  param().set_value(value);
  if (!param().is_variable()) graph().announce_change();
}

std::string HyperParamSetter::save_state() const {
  return param().is_in_checkpoints() ? "" : exact_text(param().get_value());
}

void HyperParamSetter::load_state(const std::string& state) {
  if (!param().is_in_checkpoints()) assign(parse_exact_text(state));
}

HyperParamSetterWithFunc::HyperParamSetterWithFunc(AnyHyperParam param, Function function,
                                                   HyperParamSetterWithFuncOptions options)
    : HyperParamSetterWithFunc(std::move(param), options, without_monitors(std::move(function))) {}

HyperParamSetterWithFunc::HyperParamSetterWithFunc(AnyHyperParam param,
                                                   HyperParamSetterWithFuncOptions options,
                                                   FunctionOfMonitors function)
    : HyperParamSetter(std::move(param)), function_(std::move(function)), options_(options) {
  TP_CHECK(function_ != nullptr, "HyperParamSetterWithFunc",
           "the function is empty. Pass one that gives the value.");
}

HyperParamSetterWithFunc::FunctionOfMonitors HyperParamSetterWithFunc::without_monitors(
    Function function) {
  if (function == nullptr) return nullptr;
  return [function = std::move(function)](int64_t epoch, double old, const Monitors&) {
    return function(epoch, old);
  };
}

void HyperParamSetterWithFunc::before_train() {
  if (!trainer().loop().is_resumed()) HyperParamSetter::before_train();
}

std::optional<double> HyperParamSetterWithFunc::next_value() {
  return function_(epoch_num(), param().get_value(), trainer().monitors());
}

}  // namespace tensorpack
