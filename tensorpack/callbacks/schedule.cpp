// SPDX-License-Identifier: Apache-2.0
#include "tensorpack/callbacks/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "tensorpack/utils/error.h"

namespace tensorpack::schedule {
namespace {

void check_length(std::string_view where, double length) {
  TP_CHECK(length > 0, where, "the length must be positive, got {}.", length);
}

void check_schedule(std::string_view where, const Schedule& schedule) {
  TP_CHECK(schedule != nullptr, where, "the schedule is empty. Pass a function.");
}

// Goes from one value to the other as `progress` goes from 0 to 1.
double half_wave(double from, double to, double progress) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

// How much of the length is over, in 0..1.
double progress(double time, double length) { return std::clamp(time / length, 0.0, 1.0); }

}  // namespace

Schedule cosine(Decay decay) {
  check_length("schedule::cosine", decay.length);
  return [=](double time) { return half_wave(decay.from, decay.to, progress(time, decay.length)); };
}

Schedule linear(Decay decay) {
  return polynomial({.from = decay.from, .to = decay.to, .length = decay.length, .power = 1});
}

Schedule polynomial(PolynomialDecay decay) {
  check_length("schedule::polynomial", decay.length);
  TP_CHECK(decay.power > 0, "schedule::polynomial", "the power must be positive, got {}.",
           decay.power);
  return [=](double time) {
    const double left = 1 - progress(time, decay.length);
    return decay.to + (decay.from - decay.to) * std::pow(left, decay.power);
  };
}

Schedule exponential(ExponentialDecay decay) {
  check_length("schedule::exponential", decay.every);
  TP_CHECK(decay.factor > 0, "schedule::exponential", "the factor must be positive, got {}.",
           decay.factor);
  return [=](double time) { return decay.from * std::pow(decay.factor, time / decay.every); };
}

Schedule staircase(ExponentialDecay decay) {
  return [smooth = exponential(decay), every = decay.every](double time) {
    return smooth(std::floor(time / every) * every);
  };
}

Schedule constant(double value) {
  return [value](double) { return value; };
}

Schedule steps(double first, std::vector<std::pair<double, double>> points) {
  for (size_t i = 1; i < points.size(); ++i) {
    TP_CHECK(points[i - 1].first < points[i].first, "schedule::steps",
             "the time {} comes after {}. Give the points in the order of their times.",
             points[i].first, points[i - 1].first);
  }
  return [first, points = std::move(points)](double time) {
    double value = first;
    for (const auto& [begin, next] : points) {
      if (time >= begin) value = next;
    }
    return value;
  };
}

Schedule warm_up(Schedule then, WarmUp options) {
  check_schedule("schedule::warm_up", then);
  const double to = then(0);
  return schedule::then(linear({.from = options.from, .to = to, .length = options.length}),
                        options.length, std::move(then));
}

Schedule one_cycle(OneCycle options) {
  TP_CHECK(options.rise > 0 && options.rise < 1, "schedule::one_cycle",
           "the share in which it rises must lie between 0 and 1, got {}.", options.rise);
  const double top = options.rise * options.length;
  return then(
      cosine({.from = options.peak / options.start_divisor, .to = options.peak, .length = top}),
      top,
      cosine({.from = options.peak,
              .to = options.peak / options.final_divisor,
              .length = options.length - top}));
}

Schedule then(Schedule first, double length, Schedule second) {
  check_schedule("schedule::then", first);
  check_schedule("schedule::then", second);
  check_length("schedule::then", length);
  return [first = std::move(first), length, second = std::move(second)](double time) {
    return time < length ? first(time) : second(time - length);
  };
}

Schedule repeat(Schedule schedule, double period) {
  check_schedule("schedule::repeat", schedule);
  check_length("schedule::repeat", period);
  return [schedule = std::move(schedule), period](double time) {
    return schedule(std::fmod(time, period));
  };
}

Schedule scale(Schedule schedule, double factor) {
  check_schedule("schedule::scale", schedule);
  return [schedule = std::move(schedule), factor](double time) { return factor * schedule(time); };
}

}  // namespace tensorpack::schedule
