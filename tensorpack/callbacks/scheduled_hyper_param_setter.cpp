// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/scheduled_hyper_param_setter.h"

#include <algorithm>
#include <cmath>

#include "tensorpack/utils/error.h"
#include "tensorpack/utils/logger.h"
#include "tensorpack/utils/string.h"

namespace tensorpack {
namespace {

// Variables are floats: what is written is not quite what is read.
bool is_close(double a, double b) {
  return std::abs(a - b) <= 1e-5 * std::max(std::abs(a), std::abs(b));
}

}  // namespace

ScheduledHyperParamSetter::ScheduledHyperParamSetter(AnyHyperParam param, Points points,
                                                     ScheduledHyperParamSetterOptions options)
    : HyperParamSetter(std::move(param)), points_(std::move(points)), options_(options) {
  TP_CHECK(!points_.empty(), "ScheduledHyperParamSetter",
           "the schedule is empty. Pass points such as {{{{30, 0.01}}, {{60, 0.001}}}}.");
  for (const auto& [time, value] : points_) {
    TP_CHECK(!std::isnan(value), "ScheduledHyperParamSetter",
             "the value for {} {} is NaN. Pass a number.", options_.step_based ? "step" : "epoch",
             time);
  }
  std::sort(points_.begin(), points_.end());
  for (size_t i = 1; i < points_.size(); ++i) {
    TP_CHECK(points_[i].first != points_[i - 1].first, "ScheduledHyperParamSetter",
             "there are two values for {} {}: {} and {}. Keep one.",
             options_.step_based ? "step" : "epoch", points_[i].first, points_[i - 1].second,
             points_[i].second);
  }
  TP_CHECK(points_[0].first >= 0, "ScheduledHyperParamSetter",
           "the point {} is negative. Use 0 for before the first {}.", points_[0].first,
           options_.step_based ? "step" : "epoch");
}

ScheduledHyperParamSetter::ScheduledHyperParamSetter(AnyHyperParam param, Schedule schedule,
                                                     ScheduledHyperParamSetterOptions options)
    : HyperParamSetter(std::move(param)), schedule_(std::move(schedule)), options_(options) {
  TP_CHECK(schedule_ != nullptr, "ScheduledHyperParamSetter",
           "the schedule is empty. Pass a function of the time.");
  TP_CHECK(options_.interp == Interp::kNone, "ScheduledHyperParamSetter",
           "a function has nothing to interpolate. Leave .interp out.");
}

void ScheduledHyperParamSetter::before_train() {
  const std::optional<double> value = replayed_value(now());
  if (!value) return;
  const double actual = param().get_value();
  if (now() > 0 && !is_at_point() && !is_close(*value, actual)) {
    logging::warning(
        "[ScheduledHyperParamSetter] {} is {:.6g} at {} {}, where the schedule has {:.6g}. {}",
        param().readable_name(), actual, options_.step_based ? "step" : "epoch", now(), *value,
        options_.set_at_beginning
            ? "It is set to that."
            : "It is left as it is: check that starting_epoch and the checkpoint are the "
              "ones you mean.");
  }
  const bool is_due_now = next_value().has_value();
  if (options_.set_at_beginning || is_due_now) set(*value);
}

void ScheduledHyperParamSetter::trigger_step() {
  if (options_.step_based) trigger();
}

void ScheduledHyperParamSetter::trigger_epoch() {
  if (!options_.step_based) trigger();
}

std::vector<std::string> ScheduledHyperParamSetter::fingerprint() const {
  const char* unit = options_.step_based ? "step" : "epoch";
  if (!schedule_) {
    std::vector<std::string> points;
    for (const auto& [time, value] : points_) points.push_back(fmt::format("{}: {}", time, value));
    const bool is_linear = options_.interp == Interp::kLinear;
    return {fmt::format("{} by {} = {}{}", param().readable_name(), unit, join(points),
                        is_linear ? ", linear between" : "")};
  }
  constexpr int64_t kEndless = 1'000'000;  // epochs: their number was not given
  const int64_t epochs = trainer().max_epoch() < kEndless ? trainer().max_epoch() : 0;
  const int64_t end = options_.step_based ? epochs * trainer().steps_per_epoch() : epochs;
  std::vector<std::string> values;
  for (int64_t time = 0; time <= end; time = std::max<int64_t>(2 * time, 1)) {
    values.push_back(fmt::format("{} at {} {} = {}", param().readable_name(), unit, time,
                                 schedule_(static_cast<double>(time))));
  }
  return values;
}

std::optional<double> ScheduledHyperParamSetter::next_value() {
  if (schedule_) return schedule_(static_cast<double>(now()));
  return value_between_points(now());
}

bool ScheduledHyperParamSetter::is_at_point() const {
  return std::any_of(points_.begin(), points_.end(),
                     [&](const auto& point) { return point.first == now(); });
}

std::optional<double> ScheduledHyperParamSetter::value_between_points(int64_t time) const {
  const auto after = std::upper_bound(
      points_.begin(), points_.end(), time,
      [](int64_t wanted, const std::pair<int64_t, double>& point) { return wanted < point.first; });
  if (after == points_.begin()) return std::nullopt;
  const auto& [begin, from] = *(after - 1);
  if (begin == time) return from;
  if (options_.interp == Interp::kNone || after == points_.end()) return std::nullopt;
  const auto& [end, to] = *after;
  const double share = static_cast<double>(time - begin) / static_cast<double>(end - begin);
  return from + (to - from) * share;
}

// What all points up to `time` have led to.
std::optional<double> ScheduledHyperParamSetter::replayed_value(int64_t time) const {
  if (schedule_) return schedule_(static_cast<double>(time));
  if (const auto value = value_between_points(time)) return value;
  std::optional<double> last;
  for (const auto& [begin, value] : points_) {
    if (begin <= time) last = value;
  }
  return last;
}

}  // namespace tensorpack
